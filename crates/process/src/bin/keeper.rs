//! A keeper as a binary of its own, for tests: there, `/proc/self/exe` is the test binary.

fn main() -> std::process::ExitCode {
    trunkline_process::keeper_main()
}
