//! A client of the tests' control planes.

use std::error::Error;
use std::future::{Ready, ready};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::BoxError;
use tower::buffer::BufferLayer;
use tower::retry::{Policy, RetryLayer};

/// Requests that may wait for the connections at a time.
const QUEUED: usize = 1024;
/// How often a request is repeated whose connection was closed under it.
const REPEATS: u32 = 3;

/// A client from a kubeconfig file.
///
/// # Errors
/// If the file cannot be read or makes no sense.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // A killed server must be noticed soon.
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(60));
    connect(config)
}

fn connect(config: Config) -> Result<Client> {
    let client = ClientBuilder::try_from(config)?
        .with_layer(&BufferLayer::new(QUEUED))
        .with_layer(&RetryLayer::new(ClosedConnections { left: REPEATS }))
        .build();
    Ok(client)
}

/// Repeats what a server that closes its idle connections did not read: kube keeps them for as long as kube-apiserver
/// does, so a request now and then meets one that is being closed. Creations are not repeated, for a server that died
/// may have carried them out.
#[derive(Clone)]
struct ClosedConnections {
    left: u32,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for ClosedConnections {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request<Body>, result: &mut Result<Response<B>, BoxError>) -> Option<Self::Future> {
        let error = result.as_ref().err()?;
        self.left = self.left.checked_sub(1).filter(|_| was_closed(&**error))?;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        if request.method() == Method::POST {
            return None;
        }
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}

fn was_closed(error: &(dyn Error + 'static)) -> bool {
    let of_connection = error.downcast_ref::<hyper::Error>();
    of_connection.is_some_and(|error| error.is_incomplete_message() || error.is_canceled())
        || error.source().is_some_and(was_closed)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;

    use super::*;

    /// A server that closes every connection after one answer, but does not say so beforehand.
    fn closing_server() -> Result<(Client, Arc<AtomicUsize>)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = connect(Config::new(format!("http://{}", listener.local_addr()?).parse()?))?;
        let answers = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&answers);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if answer_once(stream).is_ok() {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Ok((client, answers))
    }

    /// Answers the first request, and closes the connection when the second has come.
    fn answer_once(mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        read_request(&mut lines)?;
        let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
        stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes())?;
        read_request(&mut lines)
    }

    /// Reads up to the empty line at the end of the headers.
    fn read_request(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> std::io::Result<()> {
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        Ok(())
    }

    #[tokio::test]
    async fn a_request_on_a_connection_that_is_being_closed_is_repeated_and_a_creation_is_not() -> Result<()> {
        let (client, answers) = closing_server()?;
        let maps = Api::<ConfigMap>::namespaced(client, "default");
        maps.get("a").await?;
        maps.get("a").await.context("the second request meets the end of the first one's connection")?;
        assert_eq!(answers.load(Ordering::SeqCst), 1, "ends of connections");
        let error = maps.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();
        assert!(matches!(error, kube::Error::Service(_)), "{error:?}");
        Ok(())
    }
}
