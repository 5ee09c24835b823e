//! A proxy between a client and the API server where things go wrong as they do on real networks, by rule and seed.
//!
//! ```no_run
//! # async fn example(cluster: &e2e::cluster::Cluster) -> anyhow::Result<()> {
//! use e2e::fault_proxy::{Connections, Fault, FaultProxy, Point, Rule, Verb};
//!
//! let proxy = FaultProxy::start(&cluster.control_plane, 1).await?;
//! let mut options = cluster.candidate()?;
//! options.kubeconfig = proxy.kubeconfig(&options.kubeconfig)?;
//! // One in ten creations of NodeClaims happens, and the controller never hears of it.
//! proxy.rules([Rule::new(Fault::Hold(Point::Answer)).verbs(&[Verb::Create]).path("/nodeclaims").per_mille(100)]);
//! // What is open now is dead, and nobody says so.
//! proxy.silence(Connections::All);
//! # Ok(())
//! # }
//! ```
//!
//! Clients speak HTTP/1.1 with it, over TLS with the API server's own certificate. Each connection has one of its own
//! to the API server: where that cannot be made, or ends, it ends. Faults are the ones that a correct API server and a
//! bad network can show; a proxy that answers AlreadyExists to a first creation, or loses an event of a watch that goes
//! on for ever, would test nothing that happens.

mod exchange;
mod gate;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use self::exchange::{Answering, exchange};
use self::gate::{Gate, Switch};
use self::rule::Rules;
pub use self::rule::{Ending, Fault, Point, Rule, Verb};
use crate::ControlPlane;
use seeded_random::Random;

/// How long a cut waits until what came before it has left.
const FLUSH: Duration = Duration::from_millis(20);
/// How long a connection to the API server may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which of the connections that are open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Connections {
    /// All.
    All,
    /// Every other one, in the order in which they came.
    Half,
    /// Those on which nothing has passed for so long.
    Idle(Duration),
    /// Those that are at least so old.
    OlderThan(Duration),
}

/// The running proxy; its connections end when this is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    folder: PathBuf,
    is_tls: bool,
    accepting: AbortHandle,
}

/// What connections share.
#[derive(Debug)]
struct Shared {
    rules: Mutex<Rules>,
    /// Counts changes of the rules.
    changes: watch::Sender<u64>,
    random: Mutex<Random>,
    connections: Mutex<Vec<Arc<Switch>>>,
    idle_limit_ms: Arc<AtomicU64>,
    watches: AtomicU64,
    struck: Mutex<BTreeMap<&'static str, u64>>,
    started: Instant,
    log: Mutex<Option<File>>,
}

/// Both sides' TLS; none in this module's tests.
struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl FaultProxy {
    /// In front of a control plane's API server. What it does wrong is logged in the control plane's folder.
    ///
    /// # Errors
    /// If the API server's certificate cannot be read.
    pub async fn start(control_plane: &ControlPlane, seed: u64) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = server_of(control_plane.kubeconfig())?;
        let upstream = server.trim_start_matches("https://").parse().with_context(|| format!("address of {server}"))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let log = File::create(control_plane.folder().join(format!("fault-proxy-{number}.log")))?;
        let tls = Tls::of_api_server(&control_plane.folder().join("certs/apiserver"))?;
        Self::listen(upstream, Some(tls), seed, control_plane.folder(), Some(log)).await
    }

    async fn listen(
        upstream: SocketAddr,
        tls: Option<Tls>,
        seed: u64,
        folder: &Path,
        log: Option<File>,
    ) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            rules: Mutex::default(),
            changes: watch::Sender::new(0),
            random: Mutex::new(Random::new(seed)),
            connections: Mutex::default(),
            idle_limit_ms: Arc::default(),
            watches: AtomicU64::new(0),
            struck: Mutex::default(),
            started: Instant::now(),
            log: Mutex::new(log),
        });
        let is_tls = tls.is_some();
        let tls = Arc::new(tls);
        let of_task = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            // They end with this task.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        connections.spawn(serve(Arc::clone(&of_task), stream, upstream, Arc::clone(&tls)));
                    }
                    Some(_) = connections.join_next() => {}
                    // No more files can be opened: some may be closed soon.
                    else => tokio::time::sleep(FLUSH).await,
                }
            }
        });
        Ok(Self { shared, address, folder: folder.to_owned(), is_tls, accepting: accepting.abort_handle() })
    }

    /// A copy of a kubeconfig that leads here in place of the API server.
    ///
    /// # Errors
    /// If it cannot be read or the copy not be written.
    pub fn kubeconfig(&self, of: &Path) -> Result<PathBuf> {
        let text = std::fs::read_to_string(of).with_context(|| format!("read {}", of.display()))?;
        let server = server_of(of)?;
        let scheme = if self.is_tls { "https" } else { "http" };
        let name = of.file_name().unwrap_or_default().to_string_lossy();
        let copy = self.folder.join(format!("{name}-by-{}", self.address.port()));
        std::fs::write(&copy, text.replace(&server, &format!("{scheme}://{}", self.address)))?;
        Ok(copy)
    }

    /// These rules hold from now on, and none else.
    pub fn rules(&self, rules: impl IntoIterator<Item = Rule>) {
        *lock(&self.shared.rules) = Rules::new(rules.into_iter().collect());
        self.shared.changes.send_modify(|changes| *changes += 1);
    }

    /// Connections that were silent for so long are forgotten: nothing that is sent on them then gets anywhere, and
    /// neither end is told. `None` is never.
    pub fn forget_idle_after(&self, limit: Option<Duration>) {
        let ms = limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        self.shared.idle_limit_ms.store(ms, Ordering::SeqCst);
        self.shared.note(&format!("idle connections are forgotten after {limit:?}"));
    }

    /// From now on nothing passes on these connections, and neither end is told. New ones work. Gives their number.
    pub fn silence(&self, which: Connections) -> usize {
        let chosen = self.shared.choose(which);
        chosen.iter().for_each(|switch| switch.silence());
        self.shared.note(&format!("{} connections are silent: {which:?}", chosen.len()));
        chosen.len()
    }

    /// Breaks these connections in the middle of whatever is under way. Gives their number.
    pub fn cut(&self, which: Connections) -> usize {
        let chosen = self.shared.choose(which);
        chosen.iter().for_each(|switch| switch.cut());
        self.shared.note(&format!("{} connections are cut: {which:?}", chosen.len()));
        chosen.len()
    }

    /// How many connections are open and not silent.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.choose(Connections::All).len()
    }

    /// How many of those have passed nothing for so long.
    #[must_use]
    pub fn idle_connections(&self, least: Duration) -> usize {
        self.shared.choose(Connections::Idle(least)).len()
    }

    /// How often each fault of the rules struck, by its [name](Fault::name). A test that wants faults looks here
    /// whether it had any.
    #[must_use]
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.shared.struck).clone()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn strike(&self, verb: Verb, path: &str, what: &str) -> Option<Fault> {
        let fault = lock(&self.rules).strike(verb, path, &mut self.random())?;
        self.count(&fault, what);
        Some(fault)
    }

    fn loses_events(&self, path: &str, watch: u64) -> Option<Ending> {
        lock(&self.rules).loses_events(path, watch)
    }

    fn next_watch(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed)
    }

    fn random(&self) -> MutexGuard<'_, Random> {
        lock(&self.random)
    }

    fn count(&self, fault: &Fault, what: &str) {
        *lock(&self.struck).entry(fault.name()).or_default() += 1;
        self.note(&format!("{fault:?}: {what}"));
    }

    fn note(&self, text: &str) {
        if let Some(log) = &mut *lock(&self.log) {
            // A full disk shows elsewhere.
            let _ = writeln!(log, "{:.3} {text}", self.started.elapsed().as_secs_f64());
        }
    }

    fn choose(&self, which: Connections) -> Vec<Arc<Switch>> {
        let connections = lock(&self.connections);
        let open = connections.iter().filter(|switch| switch.is_open());
        let chosen = open.enumerate().filter(|(index, switch)| match which {
            Connections::All => true,
            Connections::Half => index % 2 == 0,
            Connections::Idle(least) => switch.idle() >= least,
            Connections::OlderThan(least) => switch.age() >= least,
        });
        chosen.map(|(_, switch)| Arc::clone(switch)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection until it ends. Whatever its error is, the client sees that it ended.
async fn serve(shared: Arc<Shared>, stream: TcpStream, upstream: SocketAddr, tls: Arc<Option<Tls>>) {
    let _ = stream.set_nodelay(true);
    let switch = Switch::new();
    lock(&shared.connections).push(Arc::clone(&switch));
    let gate = Gate::new(stream, Arc::clone(&switch), Arc::clone(&shared.idle_limit_ms));
    let _ = serve_gate(&shared, gate, upstream, tls.as_ref().as_ref()).await;
    // A silent one stays, since it keeps its stream open.
    if switch.is_open() {
        lock(&shared.connections).retain(|other| !Arc::ptr_eq(other, &switch));
    }
}

async fn serve_gate(shared: &Arc<Shared>, gate: Gate, upstream: SocketAddr, tls: Option<&Tls>) -> Result<()> {
    let to = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(upstream)).await??;
    to.set_nodelay(true)?;
    match tls {
        None => pass(shared, gate, to).await,
        Some(tls) => {
            let from = tls.acceptor.accept(gate).await?;
            let name = ServerName::from(upstream.ip());
            // A paused API server accepts nothing, and does not say so.
            let to = tokio::time::timeout(CONNECT_TIMEOUT, tls.connector.connect(name, to)).await??;
            pass(shared, from, to).await
        }
    }
}

async fn pass<Client, Server>(shared: &Arc<Shared>, from: Client, to: Server) -> Result<()>
where
    Client: AsyncRead + AsyncWrite + Unpin + 'static,
    Server: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(to)).await?;
    let upstream = Arc::new(AsyncMutex::new(sender));
    let service = service_fn(|request| -> Answering {
        let (shared, upstream) = (Arc::clone(shared), Arc::clone(&upstream));
        Box::pin(async move { exchange(&shared, &mut *upstream.lock().await, request).await })
    });
    let client = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(from), service);
    let mut client = std::pin::pin!(client);
    tokio::select! {
        result = client.as_mut() => return Ok(result?),
        _ = connection => {}
    }
    // What the API server did not end well, its answer's body or a request without an answer, ends this in the same
    // way.
    client.as_mut().graceful_shutdown();
    Ok(client.await?)
}

impl Tls {
    /// With the certificate that the API server made for itself, which holds its authority's too.
    fn of_api_server(folder: &Path) -> Result<Self> {
        let certificates = CertificateDer::pem_file_iter(folder.join("apiserver.crt"))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("certificates in {}", folder.display()))?;
        let key = PrivateKeyDer::from_pem_file(folder.join("apiserver.key")).context("the API server's key")?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let ring = || Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(server)), connector: TlsConnector::from(Arc::new(client)) })
    }
}

/// The one server that a kubeconfig of ours names.
fn server_of(kubeconfig: &Path) -> Result<String> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let cluster = config.clusters.first().and_then(|named| named.cluster.as_ref());
    cluster.and_then(|cluster| cluster.server.clone()).with_context(|| format!("{}: no server", kubeconfig.display()))
}
