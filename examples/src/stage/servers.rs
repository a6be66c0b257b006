//! What the resource of an example needs: a server of the example's own, or one that the user names.

use std::any::Any;
use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use monolock_clock::boot_now;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A running server; it ends with this value.
pub struct Running {
    /// What it is, for people.
    pub name: &'static str,
    /// Where it is, for [`GuardedResource::open`](super::GuardedResource::open).
    pub address: String,
    /// Whatever must live as long.
    pub keep: Box<dyn Any>,
}

/// A database of your own instead of one that the example starts: `postgres://...`.
pub const POSTGRES: &str = "MONOLOCK_EXAMPLE_POSTGRES";
/// An endpoint of your own, with credentials in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`: `https://...`.
pub const S3: &str = "MONOLOCK_EXAMPLE_S3";

const PATIENCE: Duration = Duration::from_secs(60);

/// PostgreSQL from the programs that are installed, with its data in this folder.
///
/// # Errors
///
/// When it is not installed, or does not start.
pub async fn postgres(folder: PathBuf) -> Result<Running> {
    if let Ok(address) = env::var(POSTGRES) {
        return Ok(yours("PostgreSQL", address));
    }
    let programs = newest_postgres().with_context(|| {
        format!("PostgreSQL is not installed: install the Debian package postgresql, or set {POSTGRES}")
    })?;
    let (data, sockets) = (folder.join("data"), folder.join("sockets"));
    std::fs::create_dir(&sockets)?;
    let user = PostgresUser::find().await?;
    user.give(&folder)?;
    user.give(&sockets)?;

    let mut init = user.command(&programs.join("initdb"));
    init.args([
        "-A",
        "trust",
        "-U",
        "postgres",
        "--no-sync",
        "--no-locale",
        "-E",
        "UTF8",
        "-D",
    ])
    .arg(&data);
    let made = init
        .current_dir(&folder)
        .output()
        .await
        .context("initdb does not start")?;
    if !made.status.success() {
        bail!("initdb failed: {}", String::from_utf8_lossy(&made.stderr));
    }
    let port = free_port()?;
    let mut server = user.command(&programs.join("postgres"));
    server
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(&sockets)
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .current_dir(&folder);
    let child = start(server, &folder.join("postgres.log"), port).await?;
    Ok(Running {
        name: "PostgreSQL",
        address: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        keep: Box::new(child),
    })
}

/// MiniStack, an S3 server that `integration-tests/setup --python` installs, with its data in this folder.
///
/// # Errors
///
/// When it is not installed, or does not start.
pub async fn s3(folder: PathBuf) -> Result<Running> {
    if let Ok(address) = env::var(S3) {
        return Ok(yours("S3", address));
    }
    let target = env::current_exe()?;
    let target = target
        .ancestors()
        .nth(2)
        .context("a program of cargo's is two folders deep")?;
    let program = target.join("test-tools/python/bin/ministack");
    if !program.exists() {
        bail!(
            "{} is missing: run integration-tests/setup --python, or set {S3}",
            program.display()
        );
    }
    let port = free_port()?;
    let mut server = ending_with_us();
    server
        .arg(program)
        .envs([
            ("BIND_HOST", "127.0.0.1"),
            ("SERVICES", "s3"),
            ("S3_PERSIST", "1"),
        ])
        .env("GATEWAY_PORT", port.to_string())
        .env("S3_DATA_DIR", folder.join("data"))
        .env("TMPDIR", &folder)
        .env("HOME", &folder)
        .current_dir(&folder);
    let child = start(server, &folder.join("ministack.log"), port).await?;
    Ok(Running {
        name: "MiniStack (S3)",
        address: format!("http://127.0.0.1:{port}"),
        keep: Box::new(child),
    })
}

fn yours(name: &'static str, address: String) -> Running {
    Running {
        name,
        address,
        keep: Box::new(()),
    }
}

/// Starts a server and waits until its port takes connections.
async fn start(mut command: Command, log: &Path, port: u16) -> Result<Child> {
    let output = std::fs::File::create(log)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{command:?} does not start"))?;
    let begin = boot_now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        let ended = child.try_wait()?;
        if ended.is_some() || boot_now().saturating_duration_since(begin) > PATIENCE {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            bail!("{command:?} does not take connections ({ended:?}):\n{said}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(child)
}

/// A command whose process is killed when this one ends, however that comes.
fn ending_with_us() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    command
}

/// PostgreSQL refuses to run as root.
enum PostgresUser {
    Ourselves,
    Another { uid: u32 },
}

impl PostgresUser {
    async fn find() -> Result<Self> {
        if !rustix::process::getuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let id = Command::new("id").args(["-u", "postgres"]).output().await?;
        let uid = String::from_utf8(id.stdout)?;
        let uid = uid.trim().parse().context("there is no user postgres")?;
        Ok(Self::Another { uid })
    }

    fn give(&self, folder: &Path) -> Result<()> {
        if let Self::Another { uid } = self {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
            chown(folder, Some(*uid), None)?;
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = ending_with_us();
        if let Self::Another { .. } = self {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        command.arg(program);
        command
    }
}

fn newest_postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max()?;
    Some(format!("/usr/lib/postgresql/{newest}/bin").into())
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
