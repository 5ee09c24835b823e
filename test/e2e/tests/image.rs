//! The image that `cargo xtask image` makes: unpacked, checked against the image specification, and run.
//!
//! `cargo xtask test --stage release` runs this, on the image of this computer's platform.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Names the archive.
const VARIABLE: &str = "DOVETAIL_IMAGE";

/// The files of an image layout.
struct Layout(BTreeMap<String, Vec<u8>>);

impl Layout {
    /// None if no archive is named.
    fn read() -> Result<Option<Self>> {
        let Some(path) = std::env::var_os(VARIABLE) else {
            println!("skipped: {VARIABLE} names no archive; `cargo xtask test --stage release` makes one");
            return Ok(None);
        };
        let path = PathBuf::from(path);
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries()? {
            let mut entry = entry?;
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            if entry.header().entry_type().is_file() {
                files.insert(entry.path()?.display().to_string(), content);
            }
        }
        Ok(Some(Self(files)))
    }

    fn file(&self, path: &str) -> Result<&[u8]> {
        self.0.get(path).map(Vec::as_slice).with_context(|| format!("no {path}"))
    }

    /// What a descriptor refers to, checked against its digest and size.
    fn blob(&self, descriptor: &Value) -> Result<&[u8]> {
        let digest = descriptor["digest"].as_str().context("a descriptor without digest")?;
        let content = self.file(&path_of(digest)?)?;
        assert_eq!((digest.to_owned(), &descriptor["size"]), (sha256(content), &json!(content.len())));
        Ok(content)
    }

    fn json(&self, descriptor: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(self.blob(descriptor)?)?)
    }

    /// The descriptors of the images, each with its platform.
    fn images(&self) -> Result<Vec<Value>> {
        let index: Value = serde_json::from_slice(self.file("index.json")?)?;
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1), "{index}");
        let images = self.json(&index["manifests"][0])?;
        Ok(images["manifests"].as_array().context("no manifests")?.clone())
    }
}

fn path_of(digest: &str) -> Result<String> {
    let hash = digest.strip_prefix("sha256:").with_context(|| format!("{digest} is no digest"))?;
    Ok(format!("blobs/sha256/{hash}"))
}

fn sha256(content: &[u8]) -> String {
    let hash: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}")
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

#[test]
fn every_file_is_referred_to_by_its_digest_and_size() -> Result<()> {
    let Some(layout) = Layout::read()? else { return Ok(()) };
    assert_eq!(layout.file("oci-layout")?, br#"{"imageLayoutVersion":"1.0.0"}"#);
    let index: Value = serde_json::from_slice(layout.file("index.json")?)?;
    let mut descriptors = vec![index["manifests"][0].clone()];
    for image in layout.images()? {
        let manifest = layout.json(&image)?;
        let config = layout.json(&manifest["config"])?;
        let layers = manifest["layers"].as_array().context("no layers")?.clone();
        let of_content: Vec<String> =
            layers.iter().map(|layer| anyhow::Ok(sha256(layout.blob(layer)?))).collect::<Result<_>>()?;
        assert_eq!(config["rootfs"], json!({ "type": "layers", "diff_ids": of_content }));
        assert_eq!((&config["os"], &config["architecture"]), (&json!("linux"), &image["platform"]["architecture"]));
        descriptors.extend([image, manifest["config"].clone()].into_iter().chain(layers));
    }
    let mut referred = BTreeSet::from(["oci-layout".to_owned(), "index.json".to_owned()]);
    for descriptor in &descriptors {
        layout.blob(descriptor)?;
        referred.insert(path_of(descriptor["digest"].as_str().context("no digest")?)?);
    }
    assert_eq!(layout.0.keys().cloned().collect::<BTreeSet<_>>(), referred);
    Ok(())
}

/// A folder with what the image has, which is gone afterwards.
struct Root {
    path: PathBuf,
    config: Value,
}

impl Root {
    fn unpack(layout: &Layout, name: &str) -> Result<Self> {
        let images = layout.images()?;
        let ours = images.iter().find(|image| image["platform"]["architecture"] == architecture());
        let manifest = layout.json(ours.with_context(|| format!("no image for {}", architecture()))?)?;
        let config = layout.json(&manifest["config"])?["config"].clone();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("image-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        for layer in manifest["layers"].as_array().context("no layers")? {
            tar::Archive::new(layout.blob(layer)?).unpack(&path)?;
        }
        Ok(Self { path, config })
    }

    /// Runs the image's program with nothing but what is in the image, as its user where that can be chosen.
    fn run(&self, arguments: &[&str], input: &Path) -> Result<(bool, String, String)> {
        let entrypoint = self.config["Entrypoint"][0].as_str().context("no entrypoint")?;
        let mut command = if rustix::process::geteuid().is_root() {
            let user = self.config["User"].as_str().context("no user")?;
            let mut command = Command::new("chroot");
            command.arg(format!("--userspec={user}"));
            command
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "chroot"]);
            command
        };
        command.arg(&self.path).arg(entrypoint).args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = command.stdin(Stdio::from(fs::File::open(input)?)).output().context("run chroot")?;
        Ok((output.status.success(), String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What stays is in the target folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[test]
fn there_is_the_program_and_certificates_and_nothing_else() -> Result<()> {
    let Some(layout) = Layout::read()? else { return Ok(()) };
    let root = Root::unpack(&layout, "files")?;
    let names = |path: &Path| -> Result<BTreeSet<String>> {
        let entries = fs::read_dir(path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    assert_eq!(names(&root.path)?, BTreeSet::from(["dovetail".to_owned(), "etc".to_owned()]));
    let certificates = fs::read_to_string(root.path.join("etc/ssl/certs/ca-certificates.crt"))?;
    assert!(certificates.matches("-----BEGIN CERTIFICATE-----").count() > 50);
    assert_eq!(root.config["User"], "65532:65532", "the chart runs it as this user");
    assert_eq!(root.config["Cmd"], json!(["run"]));
    Ok(())
}

#[test]
fn the_program_tells_its_version_and_plans_with_nothing_else_around_it() -> Result<()> {
    let Some(layout) = Layout::read()? else { return Ok(()) };
    let root = Root::unpack(&layout, "run")?;
    let (is_done, version, errors) = root.run(&["--version"], Path::new("/dev/null"))?;
    ensure!(is_done, "--version: {errors}");
    assert_eq!(version.trim(), format!("dovetail {}", env!("CARGO_PKG_VERSION")));
    let shop = go_programs::repository().join("examples/web/shop.yaml");
    let (_, plan, errors) = root.run(&["plan", "--provider", "aws", "-f", "-", "--expand-workloads"], &shop)?;
    ensure!(plan.contains("New machines") && plan.contains("us-east-1"), "plan: {plan}{errors}");
    Ok(())
}
