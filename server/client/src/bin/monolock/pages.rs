//! Completions and manual pages, made when the program is built, from the definition of its command line.

use std::io::{self, Write, stdout};
use std::path::Path;

use clap_complete::{Generator as _, Shell};

use crate::{Failure, exit};

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

pub(crate) fn print_completions(shell: Shell) -> Result<u8, Failure> {
    print(content(COMPLETIONS, &shell.file_name("monolock")))
}

pub(crate) fn print_manual(out_dir: Option<&Path>) -> Result<u8, Failure> {
    let Some(folder) = out_dir else {
        return print(content(MANUAL, "monolock.1"));
    };
    write_all_to(folder).map_err(|error| {
        let message = format!("cannot write manual pages into {}: {error}", folder.display());
        Failure::new(exit::FAILURE, message)
    })?;
    Ok(0)
}

fn write_all_to(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    MANUAL
        .iter()
        .try_for_each(|(name, page)| std::fs::write(folder.join(name), page))
}

fn content<'a>(files: &[(&str, &'a str)], name: &str) -> &'a str {
    let found = files.iter().find(|(file, _)| *file == name);
    found.expect("the build made one for each").1
}

fn print(text: &str) -> Result<u8, Failure> {
    stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::new(exit::FAILURE, error))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::{Command, CommandFactory as _, ValueEnum as _};

    /// Every command a user may call, with the name of its manual page.
    fn commands() -> Vec<(String, Command)> {
        let cli = Cli::command();
        let below = cli
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| (format!("monolock-{}.1", command.get_name()), command.clone()));
        let mut all: Vec<_> = below.collect();
        all.push(("monolock.1".to_owned(), cli));
        all
    }

    fn options(command: &Command) -> Vec<String> {
        let long = command.get_arguments().filter_map(clap::Arg::get_long);
        long.map(str::to_owned).collect()
    }

    #[test]
    fn each_command_has_a_page_that_names_each_of_its_options() {
        let commands = commands();
        assert_eq!(MANUAL.len(), commands.len());
        for (page, command) in &commands {
            let text = content(MANUAL, page).replace("\\-", "-");
            for option in options(command) {
                assert!(text.contains(&format!("--{option}")), "{page}: --{option}");
            }
        }
        assert!(content(MANUAL, "monolock-run.1").contains("MONOLOCK_TOKEN"));
        assert!(!MANUAL.iter().any(|(name, _)| name.contains("guard")));
    }

    #[test]
    fn each_shell_completes_each_option() {
        assert_eq!(COMPLETIONS.len(), Shell::value_variants().len());
        for (name, script) in COMPLETIONS {
            for (_, command) in commands() {
                for option in options(&command) {
                    assert!(script.contains(&option), "{name}: --{option}");
                }
            }
        }
    }
}
