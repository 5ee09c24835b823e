//! A small HTTP server for probes and metrics: bounded in connections, and in the time that a client may take to ask.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// More wait to be accepted.
const CONNECTIONS: usize = 256;
/// A client that takes longer to shake hands or to send a request's head is hung up on.
const ASKING_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed accept, as when files run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves a router until `stop` is cancelled. Port 0 takes a free one. Gives back the address once it listens; `flag`
/// is what the port was asked for with.
///
/// # Errors
/// If the port cannot be listened on.
pub(crate) async fn listen(
    flag: &str,
    port: u16,
    router: Router,
    tls: Option<Tls>,
    stop: CancellationToken,
) -> anyhow::Result<SocketAddr> {
    // On Linux the first takes IPv4 as well; without IPv6 there is the second.
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    };
    let listener = listener.with_context(|| format!("--{flag}: cannot listen on {port}"))?;
    let address = listener.local_addr()?;
    tokio::spawn(accept(listener, router, tls, stop));
    Ok(address)
}

async fn accept(listener: TcpListener, router: Router, tls: Option<Tls>, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepting = async {
            // Never closed, so there always is one in the end.
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accepting => accepted,
            () = stop.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let acceptor = tls.as_ref().map(Tls::acceptor);
        let (router, stop) = (router.clone(), stop.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = connection(stream, acceptor, router, stop).await {
                debug!(error = format!("{error:#}"), "a connection ended with an error");
            }
        });
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    match acceptor {
        None => serve(stream, router, stop).await,
        Some(acceptor) => {
            let stream = tokio::time::timeout(ASKING_TIMEOUT, acceptor.accept(stream)).await;
            serve(stream.context("no handshake in time")??, router, stop).await
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(ASKING_TIMEOUT);
    let serving = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => return Ok(ended?),
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    Ok(serving.await?)
}

/// A certificate to serve with: from a folder, read again when it is renewed, or made for this process.
#[derive(Debug)]
pub(crate) struct Tls {
    folder: Option<PathBuf>,
    current: Mutex<Current>,
}

struct Current {
    /// When the certificate's file was changed.
    modified: Option<SystemTime>,
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("modified", &self.modified).finish_non_exhaustive()
    }
}

impl Tls {
    /// With `tls.crt` and `tls.key` of a folder, as a Secret of type `kubernetes.io/tls` has them.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn from_folder(folder: &Path) -> anyhow::Result<Self> {
        let current = Mutex::new(read(folder)?);
        Ok(Self { folder: Some(folder.to_owned()), current })
    }

    /// With a self-signed certificate.
    ///
    /// # Errors
    /// If none can be made.
    pub(crate) fn self_signed() -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).context("cannot make a certificate")?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let acceptor = acceptor(vec![made.cert.der().clone()], key.into())?;
        Ok(Self { folder: None, current: Mutex::new(Current { modified: None, acceptor }) })
    }

    /// For the next connection.
    fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock();
        if let Some(folder) = &self.folder
            && modified(folder) != current.modified
        {
            match read(folder) {
                Ok(renewed) => {
                    info!(folder = %folder.display(), "read the renewed certificate");
                    *current = renewed;
                }
                // Half written; the next connection sees the rest.
                Err(error) => warn!(error = format!("{error:#}"), "could not read the renewed certificate"),
            }
        }
        current.acceptor.clone()
    }
}

fn modified(folder: &Path) -> Option<SystemTime> {
    std::fs::metadata(folder.join("tls.crt")).and_then(|file| file.modified()).ok()
}

fn read(folder: &Path) -> anyhow::Result<Current> {
    let modified = modified(folder);
    let path = folder.join("tls.crt");
    let chain = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| format!("cannot read {}", path.display()))?;
    let path = folder.join("tls.key");
    let key = PrivateKeyDer::from_pem_file(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Current { modified, acceptor: acceptor(chain, key)? })
}

fn acceptor(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(chain, key).context("cannot use the certificate")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;

    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// A client of a server that has begun to listen, and what stops that.
    async fn connected(tls: Option<Tls>) -> (TcpStream, CancellationToken) {
        let stop = CancellationToken::new();
        let router = Router::new().route("/", get(|| async { "hello" }));
        let mut address = listen("port", 0, router, tls, stop.clone()).await.unwrap();
        address.set_ip(Ipv4Addr::LOCALHOST.into());
        (TcpStream::connect(address).await.unwrap(), stop)
    }

    async fn send(stream: &TcpStream, text: &str) {
        stream.writable().await.unwrap();
        assert_eq!(stream.try_write(text.as_bytes()).unwrap(), text.len());
    }

    /// What comes next; nothing at the end of the connection, however it ends.
    async fn receive(stream: &TcpStream) -> String {
        let mut bytes = [0; 4096];
        loop {
            stream.readable().await.unwrap();
            match stream.try_read(&mut bytes) {
                Ok(count) => return String::from_utf8_lossy(&bytes[..count]).into_owned(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return String::new(),
            }
        }
    }

    #[tokio::test]
    async fn a_request_is_answered_and_stopping_ends_connections() {
        let (stream, stop) = connected(None).await;
        send(&stream, REQUEST).await;
        let answer = receive(&stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
        stop.cancel();
        assert_eq!(receive(&stream).await, "", "the connection is closed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_finishes_its_request_is_hung_up_on() {
        let (stream, _stop) = connected(None).await;
        send(&stream, "GET / HTTP/1.1\r\nHost:").await;
        let ended = tokio::time::timeout(ASKING_TIMEOUT * 2, receive(&stream)).await;
        assert!(ended.is_ok_and(|answer| !answer.contains("hello")), "still connected");
    }

    #[tokio::test]
    async fn a_server_with_a_certificate_does_not_speak_plain_text() {
        let (stream, _stop) = connected(Some(Tls::self_signed().unwrap())).await;
        send(&stream, REQUEST).await;
        assert!(!receive(&stream).await.contains("hello"));
    }

    #[test]
    fn a_folder_without_a_certificate_is_named() {
        let error = Tls::from_folder(Path::new("/nowhere")).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/tls.crt"), "{error:#}");
    }
}
