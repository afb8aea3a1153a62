/* Counts the user instructions of all threads of a process, one step at a time, until the process ends.
 *
 * For machines whose processor has no counter that may be used, such as most virtual machines. The process is about a
 * thousand times slower meanwhile. Arguments: the process id, and a file whose first eight bytes become the counter.
 * Prints `ready` when counting has begun. Child processes are not counted.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_THREADS = 1024 };

static struct thread {
    pid_t id;
    unsigned long address;
} threads[MAX_THREADS];
static int thread_count;

static struct thread *find(pid_t id) {
    static struct thread *last = threads;
    if (last->id == id) return last;
    for (last = threads; last < threads + thread_count; last++)
        if (last->id == id) return last;
    /* With too many threads, the address of the first is overwritten, which may count a repetition. */
    last = thread_count < MAX_THREADS ? &threads[thread_count++] : threads;
    last->id = id;
    return last;
}

/* Whether the stop is after another instruction. A repeated string instruction stops after each repetition. */
static int is_new_instruction(pid_t id) {
#ifdef __x86_64__
    struct thread *thread = find(id);
    unsigned long before = thread->address;
    thread->address = (unsigned long)ptrace(PTRACE_PEEKUSER, id, offsetof(struct user, regs.rip), 0);
    return thread->address != before;
#else
    return id > 0;
#endif
}

static int attach(const char *process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/task", process);
    DIR *tasks = opendir(path);
    if (!tasks) return -1;
    for (struct dirent *task; (task = readdir(tasks));) {
        pid_t id = atoi(task->d_name);
        if (id <= 0) continue;
        if (ptrace(PTRACE_SEIZE, id, 0, PTRACE_O_TRACECLONE) || ptrace(PTRACE_INTERRUPT, id, 0, 0)) return -1;
    }
    return closedir(tasks);
}

static unsigned long *map_counter(const char *path) {
    unsigned long *counter = MAP_FAILED;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, sizeof *counter) == 0)
        counter = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return counter;
}

int main(int argument_count, char **arguments) {
    if (argument_count != 3) return 2;
    unsigned long *counter = map_counter(arguments[2]);
    if (counter == MAP_FAILED || attach(arguments[1])) {
        perror("cannot attach");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    int status;
    for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) continue;
        int event = status >> 16, signal = WSTOPSIG(status);
        if (signal == SIGTRAP && !event && is_new_instruction(id)) ++*counter;
        /* Signals are passed on; stops of the tracing itself are not signals. */
        long passed = event || signal == SIGTRAP ? 0 : signal;
        ptrace(PTRACE_SINGLESTEP, id, 0, (void *)passed);
    }
    return 0;
}
