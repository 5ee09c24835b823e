//! An OCI archive: an image layout (version 1.0.0 of the image specification) in a tar file.
//!
//! Nothing in it depends on when and by whom it is made, so equal binaries give equal archives.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::Platform;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Nobody's user, as in the chart.
const USER: &str = "65532:65532";
/// Where programs look first, on most distributions.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// The archive with an image for each platform, by its binary. The version is the image's tag.
pub(super) fn archive(binaries: &[(Platform, Vec<u8>)], version: &str) -> Result<Vec<u8>> {
    let mut layout = Layout::default();
    let mut images = Vec::new();
    for (platform, binary) in binaries {
        let mut image = layout.image(*platform, binary, version)?;
        image["platform"] = json!({ "os": "linux", "architecture": platform.architecture() });
        images.push(image);
    }
    let mut all = layout.add_json(INDEX, &json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": images }))?;
    // An index in the index: readers want one image here, and choose its platform then.
    all["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [all] });
    layout.write(&serde_json::to_vec(&index)?)
}

/// What is in the layout, by digest.
#[derive(Default)]
struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    /// Adds something and gives what refers to it.
    fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let descriptor =
            json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len() });
        self.blobs.insert(digest, content);
        descriptor
    }

    fn add_json(&mut self, media_type: &str, content: &Value) -> Result<Value> {
        Ok(self.add(media_type, serde_json::to_vec(content)?))
    }

    fn image(&mut self, platform: Platform, binary: &[u8], version: &str) -> Result<Value> {
        let layer = self.add(LAYER, layer(binary)?);
        let config = json!({
            "os": "linux",
            "architecture": platform.architecture(),
            "config": {
                "User": USER,
                "Entrypoint": ["/dovetail"],
                "Cmd": ["run"],
                "WorkingDir": "/",
                "Labels": {
                    "org.opencontainers.image.title": "dovetail",
                    "org.opencontainers.image.version": version,
                },
            },
            // A layer that is not compressed has one digest.
            "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
            "history": [{ "created_by": "cargo xtask image" }],
        });
        let config = self.add_json(CONFIG, &config)?;
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
        self.add_json(MANIFEST, &manifest)
    }

    fn write(&self, index: &[u8]) -> Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        file(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        file(&mut archive, "index.json", 0o644, index)?;
        folder(&mut archive, "blobs/")?;
        folder(&mut archive, "blobs/sha256/")?;
        for (digest, content) in &self.blobs {
            file(&mut archive, &format!("blobs/sha256/{digest}"), 0o644, content)?;
        }
        archive.into_inner().context("write the archive")
    }
}

/// The binary, and the certificates that there are no others of in an empty image.
fn layer(binary: &[u8]) -> Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    file(&mut layer, "dovetail", 0o755, binary)?;
    let folders = CERTIFICATES.match_indices('/').map(|(end, _)| CERTIFICATES.split_at(end + 1).0);
    folders.into_iter().try_for_each(|path| folder(&mut layer, path))?;
    file(&mut layer, CERTIFICATES, 0o644, certificates().as_bytes())?;
    layer.into_inner().context("write the layer")
}

/// Mozilla's certificates, as PEM.
fn certificates() -> String {
    let pem = |der: &[u8]| {
        let text = STANDARD.encode(der);
        // Base64 is ASCII.
        let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned());
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.collect::<Vec<_>>().join("\n"))
    };
    webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|der| pem(der)).collect()
}

fn file(archive: &mut Builder<Vec<u8>>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    append(archive, path, (EntryType::Regular, mode), content)
}

fn folder(archive: &mut Builder<Vec<u8>>, path: &str) -> Result<()> {
    append(archive, path, (EntryType::Directory, 0o755), &[])
}

/// Adds what belongs to root and has no age.
fn append(archive: &mut Builder<Vec<u8>>, path: &str, kind: (EntryType, u32), content: &[u8]) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind.0);
    header.set_mode(kind.1);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len().try_into()?);
    archive.append_data(&mut header, path, content).with_context(|| format!("add {path}"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// What a tar file holds, by path.
    fn entries(bytes: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let read = |mut entry: tar::Entry<'_, &[u8]>| {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, (entry.header().mode().unwrap(), content))
        };
        archive.entries().unwrap().map(|entry| read(entry.unwrap())).collect()
    }

    fn blob(files: &BTreeMap<String, (u32, Vec<u8>)>, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = files[&format!("blobs/sha256/{digest}")].1.clone();
        assert_eq!(descriptor["size"], content.len());
        content
    }

    fn json_of(files: &BTreeMap<String, (u32, Vec<u8>)>, descriptor: &Value) -> Value {
        serde_json::from_slice(&blob(files, descriptor)).unwrap()
    }

    #[test]
    fn each_platform_has_an_image_with_its_binary_and_certificates() {
        let binaries = [(Platform::Amd64, b"for amd64".to_vec()), (Platform::Arm64, b"for arm64".to_vec())];
        let files = entries(&archive(&binaries, "1.2.3").unwrap());
        let index: Value = serde_json::from_slice(&files["index.json"].1).unwrap();
        let [all] = index["manifests"].as_array().unwrap().as_slice() else { panic!("{index}") };
        assert_eq!(all["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
        let images = json_of(&files, all)["manifests"].as_array().unwrap().clone();
        assert_eq!(images.len(), 2);
        for ((platform, binary), image) in binaries.iter().zip(&images) {
            assert_eq!(image["platform"], json!({ "os": "linux", "architecture": platform.architecture() }));
            let manifest = json_of(&files, image);
            let config = json_of(&files, &manifest["config"]);
            assert_eq!(config["architecture"], platform.architecture());
            let layer = entries(&blob(&files, &manifest["layers"][0]));
            assert_eq!(layer["dovetail"], (0o755, binary.clone()));
            let certificates = String::from_utf8(layer[CERTIFICATES].1.clone()).unwrap();
            assert!(certificates.matches("-----BEGIN CERTIFICATE-----\nMII").count() > 50);
        }
    }

    #[test]
    fn equal_binaries_give_equal_archives() {
        let of = |content: &[u8]| archive(&[(Platform::Amd64, content.to_vec())], "1.2.3").unwrap();
        assert!(of(b"binary") == of(b"binary"));
        assert!(of(b"binary") != of(b"other"));
    }
}
