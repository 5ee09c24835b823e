//! A real Prometheus, which scrapes what runs in a test, evaluates alert rules and answers queries.

mod package;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use http::Uri;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::controller::free_port;
use crate::local_http;
use crate::wait::{DEADLINE, eventually};
use crate::watchdog::Watchdog;

/// Time between two scrapes, and between two evaluations of all rules.
const INTERVAL: &str = "2s";

/// What to scrape.
#[derive(Clone, Debug)]
pub struct Target {
    /// The value of the label `job`.
    pub job: String,
    /// With scheme, address and path. No certificate is checked.
    pub url: String,
    /// A bearer token.
    pub token: Option<String>,
}

/// A running Prometheus; killed when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    process: Child,
    watchdog: Watchdog,
    port: u16,
    log: PathBuf,
}

/// An alert rule that was loaded.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Rule {
    /// The alert.
    pub name: String,
    /// `ok` once it has been evaluated without an error.
    pub health: String,
    /// `inactive`, `pending` or `firing`.
    #[serde(default)]
    pub state: String,
}

/// Looks for the program, and fetches it if it is not installed.
///
/// # Errors
/// If it cannot be had: no registry of Debian's packages is within reach.
pub fn fetch() -> Result<()> {
    package::program().map(drop)
}

impl Prometheus {
    /// Starts one that keeps its data in a folder, and waits until it answers.
    ///
    /// # Errors
    /// If there is no program, or it does not take configuration or rules; its log is in the message.
    pub async fn start(folder: &Path, targets: &[Target], rules: &Path) -> Result<Self> {
        let program = tokio::task::spawn_blocking(package::program).await??;
        let config = folder.join("prometheus.json");
        fs::write(&config, configuration(targets, rules)?.to_string())
            .with_context(|| format!("write {}", config.display()))?;
        let (port, log) = (free_port()?, folder.join("prometheus.log"));
        let process = Command::new(&program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("run {}", program.display()))?;
        let watchdog = Watchdog::start(process.id())?;
        let prometheus = Self { process, watchdog, port, log };
        let is_ready = eventually("Prometheus is ready", DEADLINE, async || {
            let answer = local_http::get(port, "/-/ready")?;
            ensure!(answer.status == 200, "{}", answer.body);
            Ok(())
        });
        match is_ready.await {
            Ok(()) => Ok(prometheus),
            Err(error) => Err(error.context(fs::read_to_string(&prometheus.log).unwrap_or_default())),
        }
    }

    /// How many series a query returns now.
    ///
    /// # Errors
    /// Why Prometheus cannot answer it, such as that it does not parse.
    pub fn series(&self, query: &str) -> Result<usize> {
        #[derive(Deserialize)]
        struct Found {
            result: Vec<Value>,
        }
        let found: Found = self.ask(&format!("query?query={}", encoded(query))).with_context(|| query.to_owned())?;
        Ok(found.result.len())
    }

    /// The alert rules.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        #[derive(Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        let loaded: Groups = self.ask("rules?type=alert")?;
        Ok(loaded.groups.into_iter().flat_map(|group| group.rules).collect())
    }

    fn ask<T: DeserializeOwned>(&self, question: &str) -> Result<T> {
        #[derive(Deserialize)]
        struct Answer<T> {
            data: Option<T>,
            #[serde(default)]
            error: String,
        }
        let text = local_http::get(self.port, &format!("/api/v1/{question}"))?.body;
        let answer: Answer<T> = serde_json::from_str(&text).with_context(|| format!("Prometheus says {text}"))?;
        match answer.data {
            Some(data) if answer.error.is_empty() => Ok(data),
            _ => bail!("Prometheus says {}", answer.error),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.watchdog.dismiss();
    }
}

/// As JSON, which is YAML too.
fn configuration(targets: &[Target], rules: &Path) -> Result<Value> {
    let mut scraped = Vec::new();
    for target in targets {
        let url: Uri = target.url.parse().with_context(|| format!("the address of {}: {}", target.job, target.url))?;
        let authority = url.authority().with_context(|| format!("{}: no host in {url}", target.job))?;
        let scheme = url.scheme_str().with_context(|| format!("{}: no scheme in {url}", target.job))?;
        let mut config = json!({
            "job_name": target.job,
            "scheme": scheme,
            "metrics_path": url.path(),
            "tls_config": { "insecure_skip_verify": true },
            "static_configs": [{ "targets": [authority.as_str()] }],
        });
        if let Some(token) = &target.token {
            config["authorization"] = json!({ "credentials": token });
        }
        scraped.push(config);
    }
    Ok(json!({
        "global": { "scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL },
        "rule_files": [rules],
        "scrape_configs": scraped,
    }))
}

/// A value in the query of an address.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_addresses_is_encoded() {
        assert_eq!(encoded("sum(a_b{c=\"d&é\"} > 0.5)"), "sum%28a_b%7Bc%3D%22d%26%C3%A9%22%7D%20%3E%200.5%29");
    }

    #[test]
    fn a_target_is_scraped_where_its_address_says() -> Result<()> {
        let target = |url: &str, token: Option<&str>| Target {
            job: "it".to_owned(),
            url: url.to_owned(),
            token: token.map(str::to_owned),
        };
        let targets = [target("https://127.0.0.1:6443/metrics", Some("t")), target("http://127.0.0.1:80/other", None)];
        let config = configuration(&targets, Path::new("/rules.yaml"))?;
        assert_eq!(config["rule_files"], json!(["/rules.yaml"]));
        let scraped = &config["scrape_configs"];
        let of = |index: usize| {
            let it = &scraped[index];
            (&it["scheme"], &it["metrics_path"], &it["static_configs"][0]["targets"][0], &it["authorization"])
        };
        let with_token = json!({ "credentials": "t" });
        assert_eq!(of(0), (&json!("https"), &json!("/metrics"), &json!("127.0.0.1:6443"), &with_token));
        assert_eq!(of(1), (&json!("http"), &json!("/other"), &json!("127.0.0.1:80"), &Value::Null));
        assert!(configuration(&[target("nowhere", None)], Path::new("/")).is_err());
        Ok(())
    }
}
