//! Settings: flags over environment over defaults.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::logging::{LogConfig, LogFormat};

/// The settings of one lock server, checked. The default serves locks on every address of the machine, port 7070,
/// and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where locks are served: `host:port`, or `:port` for every address; port 0 takes a free one.
    pub listen: String,
    /// Where the operational endpoints are; off when `None`.
    pub ops_listen: Option<String>,
    /// Where the admin API is; off when `None`.
    pub admin_listen: Option<String>,
    /// TLS on the lock protocol; plain TCP when `None`.
    pub tls: Option<TlsFiles>,
    /// Access rules; needs a client CA. Everything is allowed when `None`.
    pub acl_file: Option<PathBuf>,
    /// Where changes of ownership are recorded; nowhere when `None`.
    pub audit_log: Option<AuditTarget>,
    /// Bounds the rest of a started frame, the wait for `ACQUIRE`, a TLS handshake and one write.
    pub io_timeout: Duration,
    /// Where token epochs are reserved; when `None`, the first grant waits for the second after the start.
    pub token_file: Option<PathBuf>,
    /// Diagnostics. Only the binary starts them: an embedding program decides for itself.
    pub log: LogConfig,
}

/// The PEM files of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whose client certificates are accepted; turns on mutual TLS.
    pub client_ca: Option<PathBuf>,
}

/// Where audit records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// Standard output, written `-`.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "0.0.0.0:7070".to_owned(),
            ops_listen: None,
            admin_listen: None,
            tls: None,
            acl_file: None,
            audit_log: None,
            io_timeout: Duration::from_secs(5),
            token_file: None,
            log: LogConfig::default(),
        }
    }
}

/// One setting cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct SettingError {
    /// The environment variable of the setting; its flag is named alike.
    pub setting: &'static str,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl SettingError {
    /// A setting and what is wrong with it.
    #[must_use]
    pub fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self {
            setting,
            problem: problem.into(),
        }
    }
}

/// The settings as they are given: text, an empty one counts as unset. Flatten it into a program's own arguments with
/// `#[command(flatten)]`, and check with [`ServerArgs::check`].
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerArgs {
    /// Address of the lock protocol [default: 0.0.0.0:7070]
    #[arg(
        long,
        env = "MONOLOCK_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        hide_env_values = true
    )]
    pub listen: Option<String>,
    /// Address of /metrics, /healthz and /readyz [default: off]
    #[arg(
        long,
        env = "MONOLOCK_OPS_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        hide_env_values = true
    )]
    pub ops_listen: Option<String>,
    /// Address of the admin API and page; who reaches it may release any lock [default: off]
    #[arg(
        long,
        env = "MONOLOCK_ADMIN_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        hide_env_values = true
    )]
    pub admin_listen: Option<String>,
    /// Certificate chain of the server, PEM; together with --tls-key [default: plain TCP]
    #[arg(long, env = "MONOLOCK_TLS_CERT", value_name = "FILE", hide_env_values = true)]
    pub tls_cert: Option<String>,
    /// Private key of --tls-cert, PEM
    #[arg(long, env = "MONOLOCK_TLS_KEY", value_name = "FILE", hide_env_values = true)]
    pub tls_key: Option<String>,
    /// CAs of client certificates, PEM; turns on mutual TLS [default: off]
    #[arg(
        long,
        env = "MONOLOCK_TLS_CLIENT_CA",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub tls_client_ca: Option<String>,
    /// Access rules, JSON; needs --tls-client-ca [default: every lock is allowed]
    #[arg(long, env = "MONOLOCK_ACL_FILE", value_name = "FILE", hide_env_values = true)]
    pub acl_file: Option<String>,
    /// File of the audit log, or - for stdout [default: off]
    #[arg(long, env = "MONOLOCK_AUDIT_LOG", value_name = "FILE", hide_env_values = true)]
    pub audit_log: Option<String>,
    /// Bound of a started frame, of the wait for ACQUIRE, of a TLS handshake, of one write [default: 5s]
    #[arg(
        long,
        env = "MONOLOCK_IO_TIMEOUT",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub io_timeout: Option<String>,
    /// File that reserves token epochs: no wait after a restart [default: none]
    #[arg(
        long,
        env = "MONOLOCK_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub token_file: Option<String>,
    /// debug, info, warn or error; written to stderr [default: info]
    #[arg(
        long,
        env = "MONOLOCK_LOG_LEVEL",
        value_name = "LEVEL",
        hide_env_values = true
    )]
    pub log_level: Option<String>,
    /// text or json [default: text]
    #[arg(
        long,
        env = "MONOLOCK_LOG_FORMAT",
        value_name = "FORMAT",
        hide_env_values = true
    )]
    pub log_format: Option<String>,
}

impl ServerArgs {
    /// Checks every setting, and the combination. Opens no file.
    ///
    /// # Errors
    ///
    /// [`SettingError`] names the first setting that cannot be used.
    pub fn check(self) -> Result<Config, SettingError> {
        let default = Config::default();
        let tls = tls_files(
            given(self.tls_cert),
            given(self.tls_key),
            given(self.tls_client_ca),
        )?;
        let acl_file = given(self.acl_file).map(PathBuf::from);
        let identifies_clients = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if acl_file.is_some() && !identifies_clients {
            return Err(SettingError::new(
                "MONOLOCK_ACL_FILE",
                "rules need the identity of clients: set MONOLOCK_TLS_CLIENT_CA too",
            ));
        }
        Ok(Config {
            listen: address("MONOLOCK_LISTEN_ADDRESS", given(self.listen))?.unwrap_or(default.listen),
            ops_listen: address("MONOLOCK_OPS_LISTEN_ADDRESS", given(self.ops_listen))?,
            admin_listen: address("MONOLOCK_ADMIN_LISTEN_ADDRESS", given(self.admin_listen))?,
            tls,
            acl_file,
            audit_log: given(self.audit_log).map(|target| match target.as_str() {
                "-" => AuditTarget::Stdout,
                path => AuditTarget::File(path.into()),
            }),
            io_timeout: given(self.io_timeout)
                .map(|text| positive_duration("MONOLOCK_IO_TIMEOUT", &text))
                .transpose()?
                .unwrap_or(default.io_timeout),
            token_file: given(self.token_file).map(PathBuf::from),
            log: LogConfig {
                level: given(self.log_level)
                    .map(|text| log_level(&text))
                    .transpose()?
                    .unwrap_or(default.log.level),
                format: given(self.log_format)
                    .map(|text| log_format(&text))
                    .transpose()?
                    .unwrap_or_default(),
            },
        })
    }
}

/// A positive duration such as `5s`, `250ms` or `1m30s`.
///
/// # Errors
///
/// [`SettingError`] names the setting.
pub fn positive_duration(setting: &'static str, text: &str) -> Result<Duration, SettingError> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(SettingError::new(
            setting,
            format!("{text:?} is no time at all: write 5s or 250ms"),
        )),
        Ok(duration) => Ok(duration),
        Err(_) => Err(SettingError::new(
            setting,
            format!("{text:?} is not a duration: write 5s, 250ms or 1m30s"),
        )),
    }
}

/// The value of a setting; an empty one counts as unset.
#[must_use]
pub fn given(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

/// Shows what clap has to say: help goes to stdout as it is, with exit code 0; a wrong argument is one line on stderr that
/// begins with the program's name, with exit code 2.
#[must_use]
pub fn explain_usage(program: &str, error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that leaves early, such as `head`, has read enough.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let problem = first.strip_prefix("error: ").unwrap_or(first);
    eprintln!("{program}: {problem} (--help lists the settings)");
    ExitCode::from(2)
}

/// Accepts the spelling of version 1, `-listen`, beside `--listen`.
#[must_use]
pub fn with_double_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let spelled_out = |argument: OsString| match argument.to_str() {
        Some(text) if is_long_with_one_dash(text) => OsString::from(format!("-{text}")),
        _ => argument,
    };
    arguments.into_iter().map(spelled_out).collect()
}

fn is_long_with_one_dash(argument: &str) -> bool {
    let Some(name) = argument.strip_prefix('-') else {
        return false;
    };
    name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn address(setting: &'static str, given: Option<String>) -> Result<Option<String>, SettingError> {
    let Some(address) = given else {
        return Ok(None);
    };
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port {
        let problem = format!("{address:?} is not an address: write host:port, for example 127.0.0.1:7070");
        return Err(SettingError::new(setting, problem));
    }
    Ok(Some(address))
}

fn tls_files(
    cert: Option<String>,
    key: Option<String>,
    client_ca: Option<String>,
) -> Result<Option<TlsFiles>, SettingError> {
    match (cert, key, client_ca) {
        (None, None, None) => Ok(None),
        (Some(cert), Some(key), client_ca) => Ok(Some(TlsFiles {
            cert: cert.into(),
            key: key.into(),
            client_ca: client_ca.map(PathBuf::from),
        })),
        (Some(_), None, _) => Err(SettingError::new(
            "MONOLOCK_TLS_KEY",
            "missing: MONOLOCK_TLS_CERT is set, and they are valid only together",
        )),
        (None, Some(_), _) => Err(SettingError::new(
            "MONOLOCK_TLS_CERT",
            "missing: MONOLOCK_TLS_KEY is set, and they are valid only together",
        )),
        (None, None, Some(_)) => Err(SettingError::new(
            "MONOLOCK_TLS_CLIENT_CA",
            "needs MONOLOCK_TLS_CERT and MONOLOCK_TLS_KEY too",
        )),
    }
}

fn log_level(text: &str) -> Result<LevelFilter, SettingError> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(LevelFilter::DEBUG),
        "info" => Ok(LevelFilter::INFO),
        "warn" => Ok(LevelFilter::WARN),
        "error" => Ok(LevelFilter::ERROR),
        _ => Err(SettingError::new(
            "MONOLOCK_LOG_LEVEL",
            format!("{text:?} is not a level: write debug, info, warn or error"),
        )),
    }
}

fn log_format(text: &str) -> Result<LogFormat, SettingError> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(SettingError::new(
            "MONOLOCK_LOG_FORMAT",
            format!("{text:?} is not a format: write text or json"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_of(args: ServerArgs) -> String {
        args.check().expect_err("refused").to_string()
    }

    #[test]
    fn nothing_given_is_the_default_and_an_empty_value_is_not_given() {
        assert_eq!(ServerArgs::default().check().expect("valid"), Config::default());
        let empty = ServerArgs {
            listen: Some(String::new()),
            tls_key: Some(String::new()),
            io_timeout: Some(String::new()),
            log_level: Some(String::new()),
            ..ServerArgs::default()
        };
        assert_eq!(empty.check().expect("valid"), Config::default());
    }

    #[test]
    fn a_bad_value_is_named() {
        let some = |text: &str| Some(text.to_owned());
        let none = ServerArgs::default;
        for (args, setting) in [
            (
                ServerArgs {
                    listen: some("7070"),
                    ..none()
                },
                "MONOLOCK_LISTEN_ADDRESS",
            ),
            (
                ServerArgs {
                    ops_listen: some("x:99999"),
                    ..none()
                },
                "MONOLOCK_OPS_LISTEN_ADDRESS",
            ),
            (
                ServerArgs {
                    io_timeout: some("soon"),
                    ..none()
                },
                "MONOLOCK_IO_TIMEOUT",
            ),
            (
                ServerArgs {
                    io_timeout: some("0s"),
                    ..none()
                },
                "MONOLOCK_IO_TIMEOUT",
            ),
            (
                ServerArgs {
                    log_level: some("loud"),
                    ..none()
                },
                "MONOLOCK_LOG_LEVEL",
            ),
            (
                ServerArgs {
                    log_format: some("xml"),
                    ..none()
                },
                "MONOLOCK_LOG_FORMAT",
            ),
            (
                ServerArgs {
                    tls_cert: some("a"),
                    ..none()
                },
                "MONOLOCK_TLS_KEY",
            ),
            (
                ServerArgs {
                    tls_key: some("a"),
                    ..none()
                },
                "MONOLOCK_TLS_CERT",
            ),
            (
                ServerArgs {
                    tls_client_ca: some("a"),
                    ..none()
                },
                "MONOLOCK_TLS_CLIENT_CA",
            ),
            (
                ServerArgs {
                    acl_file: some("a"),
                    ..none()
                },
                "MONOLOCK_ACL_FILE",
            ),
        ] {
            let problem = problem_of(args);
            assert!(
                problem.starts_with(setting) && !problem.contains('\n'),
                "{problem}"
            );
        }
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let given = [
            "monolock-server",
            "-listen",
            "a:1",
            "--ops-listen",
            "-h",
            "-audit-log=-",
            "-",
            "-1",
        ];
        let expected = [
            "monolock-server",
            "--listen",
            "a:1",
            "--ops-listen",
            "-h",
            "--audit-log=-",
            "-",
            "-1",
        ];
        assert_eq!(
            with_double_dashes(given.map(OsString::from)),
            expected.map(OsString::from)
        );
    }
}
