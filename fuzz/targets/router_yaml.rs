//! Contents of `router.yaml`: either a router, or an error that names the file.

#![no_main]

#[path = "../src/loading.rs"]
mod loading;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| loading::check("router.yaml", data));
