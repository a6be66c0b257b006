//! A Ceph object gateway of the test's own, on a cluster that lives in memory. Needs the Debian packages `radosgw`,
//! `ceph-mon`, `ceph-osd` and `ceph-common`.

use std::path::Path;
use std::process::Command;

use aws_sdk_s3::Client;
use tempfile::TempDir;

use super::ministack::{BUCKET, client_at};
use super::server::{Server, eventually, free_port, run};

/// A gateway with one empty bucket; it ends with this value, and the cluster behind it.
pub struct Rgw {
    // In the order in which they are ended.
    gateway: Server,
    _osd: Server,
    _mon: Server,
    port: u16,
    dir: TempDir,
}

impl Rgw {
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("rgw")
            .tempdir()
            .expect("a temporary folder");
        let path = dir.path().to_owned();
        let path = path.as_path();
        let (mon_port, port) = (free_port(), free_port());
        for folder in ["mon", "osd", "rgw"] {
            std::fs::create_dir(path.join(folder)).expect("our folder");
        }
        std::fs::write(path.join("keyring"), "").expect("our folder");
        std::fs::write(path.join("conf"), conf(path, mon_port, port)).expect("our folder");

        let map = path.join("monmap");
        let address = format!("[v2:127.0.0.1:{mon_port}]");
        run(Command::new("monmaptool")
            .args(["--create", "--addv", "a", &address, "--fsid", FSID])
            .arg(&map));
        run(ceph(path, "ceph-mon")
            .args(["--mkfs", "-i", "a", "--monmap"])
            .arg(&map));
        let mon = Server::spawn(
            ceph(path, "ceph-mon").args(["-i", "a", "-f"]),
            &path.join("mon.out"),
        );
        // These wait for the monitor by themselves.
        run(ceph(path, "ceph").args(["--connect-timeout", "60", "osd", "new", OSD]));
        run(ceph(path, "ceph-osd").args(["-i", "0", "--mkfs", "--osd-uuid", OSD]));
        let osd = Server::spawn(
            ceph(path, "ceph-osd").args(["-i", "0", "-f"]),
            &path.join("osd.out"),
        );
        let user = [
            "user",
            "create",
            "--uid=test",
            "--display-name=test",
            "--access-key=test",
            "--secret=test",
        ];
        run(ceph(path, "radosgw-admin").args(user));
        let mut rgw = Self {
            gateway: spawn_gateway(path),
            _osd: osd,
            _mon: mon,
            port,
            dir,
        };
        rgw.wait_until_ready().await;
        rgw
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the gateway as a power cut would, and starts it again on the same port. The cluster keeps the objects.
    pub async fn crash_and_restart(&mut self) {
        self.gateway.kill();
        self.gateway = spawn_gateway(self.dir.path());
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&mut self) {
        let (port, client) = (self.port, self.client());
        let (gateway, dir) = (&mut self.gateway, self.dir.path());
        eventually("the gateway creates a bucket", async || {
            assert!(
                !gateway.has_ended(),
                "{}",
                std::fs::read_to_string(dir.join("rgw.out")).unwrap_or_default()
            );
            gateway.listens_on(port) && client.create_bucket().bucket(BUCKET).send().await.is_ok()
        })
        .await;
    }

    pub fn client(&self) -> Client {
        client_at(self.port)
    }
}

const FSID: &str = "b4a3e1c8-8f0e-4a51-9a7b-6d1f0c5e2d11";
const OSD: &str = "0f2c9b54-3f5d-4f0b-8f0c-2f3f7a1e9c22";

fn spawn_gateway(path: &Path) -> Server {
    Server::spawn(
        ceph(path, "radosgw").args(["-n", "client.admin", "-f"]),
        &path.join("rgw.out"),
    )
}

fn ceph(path: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(path.join("conf"));
    command
}

/// Authentication is off, and with it the encryption that a gateway would ask of its monitor.
fn conf(path: &Path, mon_port: u16, port: u16) -> String {
    let dir = path.display();
    format!(
        "[global]
fsid = {FSID}
mon host = [v2:127.0.0.1:{mon_port}/0]
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms client mode = crc
ms bind msgr1 = false
public addr = 127.0.0.1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data = {dir}/mon
osd data = {dir}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
run dir = {dir}
admin socket = {dir}/$name.asok
log file = {dir}/$name.log
pid file = {dir}/$name.pid
keyring = {dir}/keyring
rgw data = {dir}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port}
"
    )
}
