/* Fake CLI without a C library. It starts in a tenth of a millisecond, so that the time of a turn is the gateway's.
 *
 * It reads its stdin to the end and prints its answer with one write. The last argument selects the format: `generate`
 * and `stream` are the commands of the provider protocol, anything else is the output of `codex exec --json`. With
 * FAKE_AGENT=stream in its environment it prints ten deltas, the first at once, the others 20 ms apart; with
 * FAKE_AGENT=deltas it prints a thousand of codex's at once, with a write for each.
 */

#if defined(__x86_64__)
enum { CALL_READ = 0, CALL_WRITE = 1, CALL_NANOSLEEP = 35, CALL_EXIT_GROUP = 231 };

static long system_call(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

__asm__(".globl _start\n_start:\n    mov %rsp, %rdi\n    and $-16, %rsp\n    call run\n");
#elif defined(__aarch64__)
enum { CALL_READ = 63, CALL_WRITE = 64, CALL_NANOSLEEP = 101, CALL_EXIT_GROUP = 94 };

static long system_call(long number, long first, long second, long third) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}

__asm__(".globl _start\n_start:\n    mov x0, sp\n    bl run\n");
#else
#error "no system calls for this processor"
#endif

enum { DELTAS = 10, MANY_DELTAS = 1000 };

static const char CODEX_BEGIN[] =
    "{\"type\":\"thread.started\",\"thread_id\":\"01a1dc9b-98ad-7900-b3ff-2cd667be397c\"}\n"
    "{\"type\":\"turn.started\"}\n";
static const char CODEX_ANSWER[] =
    "{\"type\":\"thread.started\",\"thread_id\":\"01a1dc9b-98ad-7900-b3ff-2cd667be397c\"}\n"
    "{\"type\":\"turn.started\"}\n"
    "{\"type\":\"item.completed\",\"item\":{\"id\":\"item_0\",\"type\":\"agent_message\",\"text\":\"ok\"}}\n"
    "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n";
static const char CODEX_DELTA[] = "{\"type\":\"content\",\"content\":\"x\"}\n";
static const char CODEX_END[] = "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n";

static const char PLAIN_ANSWER[] =
    "{\"content\":\"ok\",\"tokens_used\":2,\"model\":\"fast\",\"latency\":100000,"
    "\"finish_reason\":\"stop\",\"provider\":\"fast\"}\n";
static const char PLAIN_STREAM[] =
    "{\"content\":\"ok\",\"delta\":\"ok\",\"done\":true,\"tokens_used\":2,\"timestamp\":\"2026-01-01T00:00:00Z\"}\n";

static unsigned long length(const char *text) {
    unsigned long count = 0;
    while (text[count]) count++;
    return count;
}

static int equal(const char *left, const char *right) {
    while (*left && *left == *right) left++, right++;
    return *left == *right;
}

static void print_bytes(const char *bytes, unsigned long count) { system_call(CALL_WRITE, 1, (long)bytes, (long)count); }

static void print(const char *text) { print_bytes(text, length(text)); }

static void pause_20_ms(void) {
    const long duration[2] = {0, 20000000};
    system_call(CALL_NANOSLEEP, (long)duration, 0, 0);
}

/* Prints one line of the command `stream`: `content` is the answer so far. Called once for each number, in order. */
static void print_plain_delta(int number) {
    static char content[DELTAS + 1], line[256];
    const char *done = number + 1 == DELTAS ? "true,\"tokens_used\":2" : "false";
    const char *pieces[] = {"{\"content\":\"", content, "\",\"delta\":\"x\",\"done\":", done,
                            ",\"timestamp\":\"2026-01-01T00:00:00Z\"}\n"};
    unsigned long end = 0;
    content[number] = 'x';
    for (unsigned long piece = 0; piece < sizeof pieces / sizeof *pieces; piece++)
        for (const char *from = pieces[piece]; *from; from++) line[end++] = *from;
    print_bytes(line, end);
}

static void print_deltas(int plain) {
    if (!plain) print(CODEX_BEGIN);
    for (int number = 0; number < DELTAS; number++) {
        if (number > 0) pause_20_ms();
        if (plain)
            print_plain_delta(number);
        else
            print(CODEX_DELTA);
    }
    if (!plain) print(CODEX_END);
}

static void print_many_deltas(void) {
    print(CODEX_BEGIN);
    for (int number = 0; number < MANY_DELTAS; number++) print(CODEX_DELTA);
    print(CODEX_END);
}

/* Called with the initial stack: the number of arguments, the arguments, a null, the environment, a null. */
__attribute__((used, noreturn)) void run(const long *stack) {
    static char input[65536];
    const char *const *arguments = (const char *const *)(stack + 1);
    const char *const *environment = arguments + stack[0] + 1;
    const char *command = stack[0] > 0 ? arguments[stack[0] - 1] : "";
    int deltas = 0, many = 0;
    for (; *environment; environment++) {
        deltas |= equal(*environment, "FAKE_AGENT=stream");
        many |= equal(*environment, "FAKE_AGENT=deltas");
    }
    while (system_call(CALL_READ, 0, (long)input, sizeof input) > 0) {
    }
    if (equal(command, "health"))
        print("OK\n");
    else if (equal(command, "generate"))
        print(PLAIN_ANSWER);
    else if (many)
        print_many_deltas();
    else if (deltas)
        print_deltas(equal(command, "stream"));
    else
        print(equal(command, "stream") ? PLAIN_STREAM : CODEX_ANSWER);
    system_call(CALL_EXIT_GROUP, 0, 0, 0);
    __builtin_unreachable();
}
