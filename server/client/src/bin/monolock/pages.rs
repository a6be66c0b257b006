//! Completions and manual pages, made from the definition of the command line itself.

use std::io::{Write, stdout};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::{Failure, exit};

pub(crate) fn print_completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "monolock", &mut script);
    print(&script)
}

pub(crate) fn print_manual(out_dir: Option<&Path>) -> Result<u8, Failure> {
    if let Some(folder) = out_dir {
        std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .map_err(|error| {
                let message = format!("cannot write manual pages into {}: {error}", folder.display());
                Failure::new(exit::FAILURE, message)
            })?;
        return Ok(0);
    }
    let mut page = Vec::new();
    Man::new(Cli::command())
        .render(&mut page)
        .map_err(|error| Failure::new(exit::FAILURE, error))?;
    print(&page)
}

fn print(bytes: &[u8]) -> Result<u8, Failure> {
    stdout()
        .write_all(bytes)
        .map_err(|error| Failure::new(exit::FAILURE, error))?;
    Ok(0)
}
