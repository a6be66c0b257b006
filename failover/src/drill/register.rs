//! The witness of the drill's pair: of the operator's kind, under a name of its own, and cut off from one node on demand.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use monolock_failover_core::NodeId;

use super::proxy::Proxy;

/// What is added to the name of the operator's register, so that the drill never touches the real one.
const OWN: &str = "-drill";

/// Where the drill's record is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Register {
    /// A file, in this folder and of this name.
    File { folder: PathBuf, name: String },
    /// A row in PostgreSQL: the URL, and the row's name.
    Postgres { url: String, pair: String },
    /// Anything else, as in `MONOLOCK_WITNESS`.
    Other { setting: String, kind: &'static str },
}

impl Register {
    /// The drill's own register beside the one that `witness` names as `MONOLOCK_WITNESS` does; in `folder` without one.
    pub(super) fn beside(witness: Option<&str>, folder: &Path) -> Result<Self, String> {
        let Some(witness) = witness else {
            return Ok(Self::File {
                folder: folder.to_owned(),
                name: "witness".into(),
            });
        };
        let (kind, rest) = witness.split_once(':').unwrap_or((witness, ""));
        match kind {
            "file" => file_beside(Path::new(rest)),
            "postgres" | "postgresql" => {
                let (url, pair) = witness.split_once('#').unwrap_or((witness, "default"));
                Ok(Self::Postgres {
                    url: url.into(),
                    pair: format!("{pair}{OWN}"),
                })
            }
            "s3" => Ok(Self::Other {
                setting: format!("{witness}{OWN}"),
                kind: "s3",
            }),
            "dns" => {
                let (label, zone) = rest.split_once('.').unwrap_or((rest, ""));
                Ok(Self::Other {
                    setting: format!("dns:{label}{OWN}.{zone}"),
                    kind: "dns",
                })
            }
            "none" => Err("a drill needs a witness: leave it out for a file of the drill's own".into()),
            _ => Err("it is no witness: write it as in MONOLOCK_WITNESS".into()),
        }
    }

    /// What kind of register it is.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Postgres { .. } => "postgres",
            Self::Other { kind, .. } => kind,
        }
    }

    /// The setting of a node that reaches the register directly.
    pub(super) fn setting(&self) -> String {
        match self {
            Self::File { folder, name } => format!("file:{}", folder.join(name).display()),
            Self::Postgres { url, pair } => format!("{url}#{pair}"),
            Self::Other { setting, .. } => setting.clone(),
        }
    }

    /// Why no node can be cut off from it, if so.
    pub(super) fn why_not_cut(&self) -> Option<String> {
        match self {
            Self::File { .. } => None,
            Self::Postgres { url, .. } if url.contains("sslmode=verify-full") => {
                Some("a node cannot be cut off from a server whose name its certificate must show".into())
            }
            Self::Postgres { url, .. } => authority(url).is_none().then(|| "its URL names no host".into()),
            Self::Other { kind, .. } => {
                Some(format!("a node cannot be cut off from a witness of kind {kind}"))
            }
        }
    }
}

fn file_beside(path: &Path) -> Result<Register, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("write file:/path of a file")?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::path::absolute(folder.unwrap_or(Path::new("."))).map_err(|error| error.to_string())?;
    Ok(Register::File {
        folder,
        name: format!("{name}{OWN}"),
    })
}

/// One node's own way to the register, which can be cut.
#[derive(Debug)]
pub(super) enum WayToRegister {
    /// A symbolic link to the folder: pointed at something that is no folder, nothing behind it can be read or written.
    Link {
        link: PathBuf,
        folder: PathBuf,
        name: String,
    },
    /// A proxy in front of the server.
    Line { proxy: Proxy, setting: String },
}

impl WayToRegister {
    /// Lays the way of `node`, with its files in `own_folder`.
    pub(super) async fn lay(register: &Register, node: NodeId, own_folder: &Path) -> io::Result<Self> {
        match register {
            Register::File { folder, name } => {
                let way = Self::Link {
                    link: own_folder.join(format!("{node}.way")),
                    folder: folder.clone(),
                    name: name.clone(),
                };
                way.heal()?;
                Ok(way)
            }
            Register::Postgres { url, pair } => {
                let (host, range) = authority(url).ok_or(io::ErrorKind::InvalidInput)?;
                let proxy = Proxy::start(IpAddr::V4(Ipv4Addr::LOCALHOST), host).await?;
                let mut setting = format!("{url}#{pair}");
                setting.replace_range(range, &proxy.address().to_string());
                Ok(Self::Line { proxy, setting })
            }
            Register::Other { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The setting of the node that takes this way.
    pub(super) fn setting(&self) -> String {
        match self {
            Self::Link { link, name, .. } => format!("file:{}", link.join(name).display()),
            Self::Line { setting, .. } => setting.clone(),
        }
    }

    pub(super) fn cut(&self) -> io::Result<()> {
        match self {
            Self::Link { link, .. } => {
                let wall = link.with_extension("wall");
                std::fs::write(&wall, "no folder, on purpose\n")?;
                point(link, &wall)
            }
            Self::Line { proxy, .. } => {
                proxy.cut();
                Ok(())
            }
        }
    }

    pub(super) fn heal(&self) -> io::Result<()> {
        match self {
            Self::Link { link, folder, .. } => point(link, folder),
            Self::Line { proxy, .. } => {
                proxy.heal();
                Ok(())
            }
        }
    }
}

/// In one step: a node that looked between two would take a missing record for a lost one.
fn point(link: &Path, at: &Path) -> io::Result<()> {
    let staged = link.with_extension("next");
    symlink(at, &staged)?;
    std::fs::rename(&staged, link)
}

/// `host:port` of a PostgreSQL URL, and where in it that stands.
fn authority(url: &str) -> Option<(String, std::ops::Range<usize>)> {
    let start = url.find("://")? + 3;
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |length| start + length);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let host = &url[start..end];
    if host.is_empty() {
        return None;
    }
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if has_port {
        host.to_owned()
    } else {
        format!("{host}:5432")
    };
    Some((with_port, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_is_never_the_operators_own() {
        let folder = Path::new("/drill");
        for (given, own) in [
            (None, "file:/drill/witness"),
            (
                Some("file:/var/lib/monolock/witness"),
                "file:/var/lib/monolock/witness-drill",
            ),
            (
                Some("postgres://u:p@db/monolock"),
                "postgres://u:p@db/monolock#default-drill",
            ),
            (
                Some("postgresql://db/monolock#one"),
                "postgresql://db/monolock#one-drill",
            ),
            (Some("s3://bucket/witness"), "s3://bucket/witness-drill"),
            (
                Some("dns:witness.locks.example.com"),
                "dns:witness-drill.locks.example.com",
            ),
        ] {
            assert_eq!(Register::beside(given, folder).unwrap().setting(), own);
        }
        for wrong in ["none", "etcd://x", "file:"] {
            assert!(Register::beside(Some(wrong), folder).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_host_of_a_url_is_found() {
        for (url, host) in [
            ("postgres://u:p@db.internal/monolock", "db.internal:5432"),
            ("postgres://u:p%40@db:5433/monolock?sslmode=prefer", "db:5433"),
            ("postgres://[2001:db8::7]:5432", "[2001:db8::7]:5432"),
            ("postgres://db?x=@", "db:5432"),
        ] {
            let (found, range) = authority(url).unwrap();
            assert_eq!(found, host);
            assert!(host.starts_with(&url[range]));
        }
        assert_eq!(authority("postgres:///monolock?host=/run"), None);
    }

    #[tokio::test]
    async fn a_cut_way_to_a_file_is_refused_and_never_looks_empty() {
        let folder = tempfile::tempdir().unwrap();
        let register = Register::beside(None, folder.path()).unwrap();
        let way = WayToRegister::lay(&register, NodeId::A, folder.path())
            .await
            .unwrap();
        let setting = way.setting();
        let path = setting.strip_prefix("file:").unwrap();
        std::fs::write(path, "record").unwrap();
        way.cut().unwrap();
        let error = std::fs::read(path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        way.heal().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"record");
    }
}
