//! A headless Chromium of this test's own, driven over WebDriver.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::common::{PATIENCE, wait_until};

/// One at a time: a browser takes all of a small machine.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Browser {
    runtime: Runtime,
    /// `None` once closed.
    client: Option<Client>,
    driver: Child,
    _profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// What the browser pretends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Screen {
    pub(crate) dark: bool,
    pub(crate) phone: bool,
}

impl Browser {
    pub(crate) fn start(screen: Screen) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = Runtime::new().expect("a runtime");
        let profile = tempfile::tempdir().expect("a folder");
        let (driver, port) = start_driver();
        let capabilities = capabilities(screen, profile.path());
        let connecting = runtime.block_on(
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
                .capabilities(capabilities)
                .connect(&format!("http://127.0.0.1:{port}")),
        );
        Self {
            client: Some(connecting.expect("Chromium starts (Debian package chromium)")),
            runtime,
            driver,
            _profile: profile,
            _turn: turn,
        }
    }

    /// Opens the page and waits for its first answer.
    pub(crate) fn open(&self, admin: SocketAddr) {
        let page = format!("http://{admin}/");
        self.runtime
            .block_on(self.client().goto(&page))
            .expect("the page loads");
        self.wait_for_text("#connection", "Connected");
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("open until dropped")
    }

    /// The one element of this selector that can be seen, once there is one.
    pub(crate) fn find(&self, css: &str) -> Element {
        self.locate(Locator::Css(css))
    }

    /// An element within the row of a lock.
    pub(crate) fn in_row(&self, lock: &str, css_class: &str) -> Element {
        assert!(!lock.contains('\''), "a literal of XPath");
        let path = format!(
            "//li[h3='{lock}']//*[contains(concat(' ', @class, ' '), ' {css_class} ') or name()='{css_class}']"
        );
        self.locate(Locator::XPath(&path))
    }

    fn locate(&self, locator: Locator<'_>) -> Element {
        let waiting = self.client().wait().at_most(PATIENCE).for_element(locator);
        match self.runtime.block_on(waiting) {
            Ok(element) => element,
            Err(error) => panic!("{locator:?}: {error}; the page shows: {}", self.text()),
        }
    }

    pub(crate) fn click(&self, element: &Element) {
        self.runtime
            .block_on(element.click())
            .unwrap_or_else(|error| panic!("not clickable: {error}; the page shows: {}", self.text()));
    }

    pub(crate) fn type_into(&self, element: &Element, keys: &str) {
        self.runtime
            .block_on(element.send_keys(keys))
            .expect("it takes keys");
    }

    /// Sends keys to whatever has the focus.
    pub(crate) fn press(&self, keys: &str) {
        let focused = self
            .runtime
            .block_on(self.client().active_element())
            .expect("something has the focus");
        self.type_into(&focused, keys);
    }

    /// The value of a JavaScript expression.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.runtime
            .block_on(self.client().execute(&script, Vec::new()))
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until a JavaScript expression has this value.
    pub(crate) fn wait_for(&self, expression: &str, expected: &Value) {
        let mut found = Value::Null;
        let reached = wait_until(|| {
            found = self.eval(expression);
            found == *expected
        });
        assert!(
            reached,
            "{expression} is {found}, not {expected}; the page shows: {}",
            self.text()
        );
    }

    /// Waits until the element's text contains this.
    pub(crate) fn wait_for_text(&self, css: &str, part: &str) {
        let expression = format!(
            "(document.querySelector({}) ?? document.createElement('p')).textContent.includes({})",
            json!(css),
            json!(part)
        );
        self.wait_for(&expression, &Value::Bool(true));
    }

    /// The names of the locks shown, in order.
    pub(crate) fn wait_for_locks(&self, names: &[&str]) {
        self.wait_for(
            "[...document.querySelectorAll('.lock h3')].map((name) => name.textContent)",
            &json!(names),
        );
    }

    fn text(&self) -> Value {
        let shown = self
            .client()
            .execute("return document.body.innerText;", Vec::new());
        self.runtime.block_on(shown).unwrap_or_default()
    }

    /// Into the folder `MONOLOCK_TEST_SCREENSHOTS`, where that is set: for a look at the page.
    pub(crate) fn screenshot(&self, name: &str) {
        if let Some(folder) =
            std::env::var_os("MONOLOCK_TEST_SCREENSHOTS").filter(|folder| !folder.is_empty())
        {
            let image = self
                .runtime
                .block_on(self.client().screenshot())
                .expect("an image");
            let file = std::path::Path::new(&folder).join(format!("{name}.png"));
            std::fs::write(file, image).expect("the folder is there");
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            // Ends Chromium too; the driver alone could not.
            let _ = self.runtime.block_on(client.close());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn start_driver() -> (Child, u16) {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver starts: install the Debian packages chromium and chromium-driver");
    let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    // A full pipe would stop it.
    thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (driver, port.expect("chromedriver says its port"))
}

fn capabilities(screen: Screen, profile: &std::path::Path) -> fantoccini::wd::Capabilities {
    let mut arguments: Vec<String> = CHROMIUM_FLAGS.map(str::to_owned).into();
    arguments.push(format!("--user-data-dir={}", profile.display()));
    // 0 is dark, 1 is light.
    arguments.push(format!(
        "--blink-settings=preferredColorScheme={}",
        u8::from(!screen.dark)
    ));
    let mut options = json!({ "args": arguments });
    if screen.phone {
        options["mobileEmulation"] =
            json!({ "deviceMetrics": { "width": 360, "height": 740, "pixelRatio": 2 } });
    }
    let Value::Object(capabilities) = json!({ "browserName": "chrome", "goog:chromeOptions": options })
    else {
        unreachable!("written as an object")
    };
    capabilities
}

const CHROMIUM_FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
];
