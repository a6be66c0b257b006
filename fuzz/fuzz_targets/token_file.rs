#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| monolock_fuzz_checks::check("token_file", bytes));
