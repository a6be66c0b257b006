//! Makes the manual pages and shell completions of `monolock` out of the definition of its command line.

#[cfg(feature = "cli")]
#[allow(
    dead_code,
    reason = "the program reads what was parsed; here only the definition counts"
)]
#[path = "src/bin/monolock/args.rs"]
mod args;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/bin/monolock/args.rs");
    #[cfg(feature = "cli")]
    pages::generate()?;
    Ok(())
}

#[cfg(feature = "cli")]
mod pages {
    use std::fmt::Write as _;
    use std::io;
    use std::path::{Path, PathBuf};

    use clap::{CommandFactory, ValueEnum};
    use clap_complete::Shell;

    use crate::args::Cli;

    /// Writes `man` and `completions`, and `pages.rs`, which puts them into the program.
    pub(crate) fn generate() -> io::Result<()> {
        let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
        let (man, completions) = (folder.join("man"), folder.join("completions"));
        for folder in [&man, &completions] {
            // What an earlier build left may have other names.
            match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) | Ok(()) => std::fs::create_dir_all(folder)?,
            }
        }
        let command = || Cli::command().disable_help_subcommand(true);
        clap_mangen::generate_to(command(), &man)?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut command(), "monolock", &completions)?;
        }
        let mut source = String::new();
        write_table(&mut source, "MANUAL", &man)?;
        write_table(&mut source, "COMPLETIONS", &completions)?;
        std::fs::write(folder.join("pages.rs"), source)
    }

    /// A table of the files in a folder: name and content.
    fn write_table(source: &mut String, name: &str, folder: &Path) -> io::Result<()> {
        let entries = std::fs::read_dir(folder)?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        let _ = writeln!(source, "const {name}: &[(&str, &str)] = &[");
        for path in paths {
            let file = path.file_name().unwrap_or_default();
            let _ = writeln!(source, "    ({file:?}, include_str!({path:?})),");
        }
        source.push_str("];\n");
        Ok(())
    }
}
