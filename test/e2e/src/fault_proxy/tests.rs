use std::collections::VecDeque;

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use tokio::sync::mpsc;

use super::*;

const SOON: Duration = Duration::from_secs(10);
/// For what must not come. Long enough for an answer over loopback.
const NOT: Duration = Duration::from_millis(300);

type Frames = mpsc::UnboundedSender<Result<Frame<Bytes>, std::io::Error>>;

/// A server that says what it was asked; watches get what is sent through `frames`, in the order in which they came.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    watches: Arc<Mutex<VecDeque<Frames>>>,
    _accepting: JoinSet<()>,
}

impl Server {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (asked, watches) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<VecDeque<Frames>>>::default());
        let mut accepting = JoinSet::new();
        let (of_task, watches_of_task) = (Arc::clone(&asked), Arc::clone(&watches));
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, watches) = (Arc::clone(&of_task), Arc::clone(&watches_of_task));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (asked, watches) = (Arc::clone(&asked), Arc::clone(&watches));
                    async move {
                        let text = format!("{} {}", request.method(), request.uri());
                        lock(&asked).push(text.clone());
                        let (to, mut frames) = mpsc::unbounded_channel();
                        if text.contains("watch=true") {
                            lock(&watches).push_back(to);
                        } else {
                            let _ = to.send(Ok(Frame::data(Bytes::from(text))));
                        }
                        let body = StreamBody::new(futures::stream::poll_fn(move |context| frames.poll_recv(context)));
                        anyhow::Ok(Response::new(body))
                    }
                });
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Self { address, asked, watches, _accepting: accepting })
    }

    fn send(&self, watch: usize, text: &str) {
        let frame = Frame::data(Bytes::from(text.to_owned()));
        lock(&self.watches)[watch].send(Ok(frame)).unwrap();
    }

    fn asked(&self) -> usize {
        lock(&self.asked).len()
    }
}

async fn both() -> Result<(Server, FaultProxy)> {
    let server = Server::start().await?;
    let proxy = FaultProxy::listen(server.address, None, 1, Path::new("/nowhere"), None).await?;
    Ok((server, proxy))
}

struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn connect(proxy: &FaultProxy) -> Result<Self> {
        let stream = TcpStream::connect(proxy.address).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn begin(&mut self, method: &str, path: &str) -> Result<Response<Incoming>> {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "x");
        Ok(self.0.send_request(request.body(Full::default())?).await?)
    }

    /// Status and body.
    async fn ask(&mut self, method: &str, path: &str) -> Result<(StatusCode, String)> {
        let answer = self.begin(method, path).await?;
        let status = answer.status();
        Ok((status, String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?))
    }
}

/// What comes of a body until `text` has come, its end or its breaking.
async fn read(body: &mut Incoming, text: &str) -> (String, &'static str) {
    let mut read = String::new();
    loop {
        match tokio::time::timeout(SOON, body.frame()).await {
            Err(_) => return (read, "nothing"),
            Ok(None) => return (read, "end"),
            Ok(Some(Err(_))) => return (read, "break"),
            Ok(Some(Ok(frame))) => read.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
        }
        if !text.is_empty() && read.contains(text) {
            return (read, "text");
        }
    }
}

#[tokio::test]
async fn without_rules_requests_and_answers_pass_unchanged() -> Result<()> {
    let (server, proxy) = both().await?;
    let mut client = Client::connect(&proxy).await?;
    for _ in 0..3 {
        assert_eq!(client.ask("GET", "/a?b=c").await?, (StatusCode::OK, "GET /a?b=c".to_owned()));
    }
    assert_eq!((server.asked(), proxy.struck().len()), (3, 0));
    Ok(())
}

#[tokio::test]
async fn a_refusal_says_code_and_time_and_whether_the_server_acted_is_the_rules_choice() -> Result<()> {
    let (server, proxy) = both().await?;
    let mut client = Client::connect(&proxy).await?;
    let refuse = |point| Fault::Refuse { code: 429, retry_after: Some(3), point };
    proxy.rules([
        Rule::new(refuse(Point::Request)).verbs(&[Verb::Create]).path("/pods").at_most(1),
        Rule::new(refuse(Point::Answer)).verbs(&[Verb::Create]).path("/pods").at_most(1),
    ]);
    assert_eq!(client.ask("GET", "/pods").await?.0, StatusCode::OK, "another verb");
    assert_eq!(client.ask("POST", "/nodes").await?.0, StatusCode::OK, "another path");
    let refused = client.begin("POST", "/pods").await?;
    assert_eq!(
        (refused.status(), refused.headers()[header::RETRY_AFTER].to_str()?),
        (StatusCode::TOO_MANY_REQUESTS, "3")
    );
    assert!(read(&mut refused.into_body(), "").await.0.contains("TooManyRequests"));
    assert_eq!(server.asked(), 2, "the server did not hear of it");
    assert_eq!(client.ask("POST", "/pods").await?.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.asked(), 3, "the server did it all the same");
    assert_eq!(client.ask("POST", "/pods").await?.0, StatusCode::OK, "each rule struck as often as it may");
    assert_eq!(proxy.struck(), BTreeMap::from([("refused", 1), ("refused after the effect", 1)]));
    Ok(())
}

#[tokio::test]
async fn a_share_is_met_and_the_seed_decides() -> Result<()> {
    let mut answers = Vec::new();
    for seed in [1, 1, 2] {
        let server = Server::start().await?;
        let proxy = FaultProxy::listen(server.address, None, seed, Path::new("/nowhere"), None).await?;
        proxy.rules([Rule::new(Fault::Refuse { code: 500, retry_after: None, point: Point::Request }).per_mille(300)]);
        let mut client = Client::connect(&proxy).await?;
        let mut codes = Vec::new();
        for _ in 0..200 {
            codes.push(client.ask("GET", "/a").await?.0.as_u16());
        }
        let refused = codes.iter().filter(|code| **code == 500).count();
        assert!((30..90).contains(&refused), "{refused} of 200");
        answers.push(codes);
    }
    assert_eq!(answers[0], answers[1]);
    assert_ne!(answers[0], answers[2]);
    Ok(())
}

#[tokio::test]
async fn what_is_held_is_never_answered_and_a_new_connection_is() -> Result<()> {
    for (point, heard) in [(Point::Request, 0), (Point::Answer, 1)] {
        let (server, proxy) = both().await?;
        proxy.rules([Rule::new(Fault::Hold(point)).at_most(1)]);
        let mut client = Client::connect(&proxy).await?;
        assert!(tokio::time::timeout(NOT, client.ask("GET", "/a")).await.is_err(), "{point:?}");
        assert_eq!(server.asked(), heard, "{point:?}");
        let mut other = Client::connect(&proxy).await?;
        assert_eq!(other.ask("GET", "/b").await?.0, StatusCode::OK);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_delayed_is_answered_later() -> Result<()> {
    let (_server, proxy) = both().await?;
    proxy.rules([Rule::new(Fault::Delay(Duration::from_millis(200)..Duration::from_millis(201)))]);
    let started = Instant::now();
    assert_eq!(Client::connect(&proxy).await?.ask("GET", "/a").await?.0, StatusCode::OK);
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_cut_body_gives_its_beginning_and_then_breaks() -> Result<()> {
    let (_server, proxy) = both().await?;
    proxy.rules([Rule::new(Fault::CutBody { after_bytes: 7..8 })]);
    let answer = Client::connect(&proxy).await?.begin("GET", "/abcdefgh").await?;
    assert_eq!(read(&mut answer.into_body(), "").await, ("GET /ab".to_owned(), "break"));
    // Also where there was less of it than should have passed.
    proxy.rules([Rule::new(Fault::CutBody { after_bytes: 700..701 })]);
    let answer = Client::connect(&proxy).await?.begin("GET", "/abc").await?;
    assert_eq!(read(&mut answer.into_body(), "").await, ("GET /abc".to_owned(), "break"));
    Ok(())
}

#[tokio::test]
async fn a_watch_that_loses_events_ends_as_the_rule_says_when_the_rule_goes() -> Result<()> {
    for (ending, last) in [(Ending::Closed, ""), (Ending::Expired, "\"code\":410")] {
        let (server, proxy) = both().await?;
        let (mut client, mut other) = (Client::connect(&proxy).await?, Client::connect(&proxy).await?);
        let mut watch = client.begin("GET", "/pods?watch=true").await?.into_body();
        let mut quiet = other.begin("GET", "/nodes?watch=true").await?.into_body();
        server.send(0, "one\n");
        assert_eq!(read(&mut watch, "one").await.0, "one\n");
        proxy.rules([Rule::new(Fault::LoseEvents(ending)).path("/pods")]);
        server.send(0, "two\n");
        crate::eventually("the event is lost", SOON, async || {
            anyhow::ensure!(proxy.struck().contains_key("lost events"));
            Ok(())
        })
        .await?;
        proxy.rules([]);
        server.send(1, "three\n");
        let (text, how) = read(&mut watch, "").await;
        assert_eq!(how, "end");
        assert!(!text.contains("two") && text.contains(last), "{text}");
        assert_eq!(read(&mut quiet, "three").await.0, "three\n", "it lost nothing, so it goes on");
    }
    Ok(())
}

#[tokio::test]
async fn a_silent_connection_stays_open_with_nothing_passing() -> Result<()> {
    let (server, proxy) = both().await?;
    let (mut asking, mut watching) = (Client::connect(&proxy).await?, Client::connect(&proxy).await?);
    assert_eq!(asking.ask("GET", "/a").await?.0, StatusCode::OK);
    let mut watch = watching.begin("GET", "/pods?watch=true").await?.into_body();
    server.send(0, "one\n");
    read(&mut watch, "one").await;
    assert_eq!(proxy.silence(Connections::All), 2);
    server.send(0, "two\n");
    assert!(tokio::time::timeout(NOT, watch.frame()).await.is_err(), "neither event nor end");
    assert!(tokio::time::timeout(NOT, asking.ask("GET", "/b")).await.is_err(), "neither answer nor end");
    assert_eq!(server.asked(), 2, "the server did not hear of it");
    assert_eq!(proxy.open_connections(), 0);
    assert_eq!(Client::connect(&proxy).await?.ask("GET", "/c").await?.0, StatusCode::OK, "new ones work");
    // The server's own end of a silent connection is not told either.
    lock(&server.watches).clear();
    assert!(tokio::time::timeout(NOT, watch.frame()).await.is_err(), "still no end");
    Ok(())
}

#[tokio::test]
async fn half_of_the_connections_or_the_old_or_idle_ones_are_silenced() -> Result<()> {
    let (_server, proxy) = both().await?;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(&proxy).await?;
        client.ask("GET", "/a").await?;
        clients.push(client);
    }
    assert_eq!(proxy.silence(Connections::OlderThan(SOON)), 0);
    assert_eq!(proxy.silence(Connections::Idle(SOON)), 0);
    assert_eq!(proxy.silence(Connections::Half), 2);
    assert_eq!(proxy.open_connections(), 2);
    assert_eq!(proxy.silence(Connections::OlderThan(Duration::ZERO)), 2);
    assert_eq!(proxy.open_connections(), 0);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_was_idle_too_long_is_forgotten_when_it_is_used() -> Result<()> {
    let (_server, proxy) = both().await?;
    let mut client = Client::connect(&proxy).await?;
    client.ask("GET", "/a").await?;
    crate::eventually("it is idle", SOON, async || {
        anyhow::ensure!(!proxy.shared.choose(Connections::Idle(Duration::from_millis(50))).is_empty());
        Ok(())
    })
    .await?;
    proxy.forget_idle_after(Some(Duration::from_millis(20)));
    assert!(tokio::time::timeout(NOT, client.ask("GET", "/b")).await.is_err());
    let mut other = Client::connect(&proxy).await?;
    assert_eq!(other.ask("GET", "/c").await?.0, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_cut_connection_breaks_under_a_watch_and_a_held_request() -> Result<()> {
    let (server, proxy) = both().await?;
    let mut watching = Client::connect(&proxy).await?;
    let mut watch = watching.begin("GET", "/pods?watch=true").await?.into_body();
    server.send(0, "one\n");
    read(&mut watch, "one").await;
    proxy.rules([Rule::new(Fault::Hold(Point::Request))]);
    let mut client = Client::connect(&proxy).await?;
    let held = tokio::spawn(async move { client.ask("GET", "/a").await.map(drop) });
    crate::eventually("it is held", SOON, async || {
        anyhow::ensure!(proxy.struck().contains_key("held"));
        Ok(())
    })
    .await?;
    assert_eq!(proxy.cut(Connections::All), 2);
    assert_eq!(read(&mut watch, "").await.1, "break");
    assert!(tokio::time::timeout(SOON, held).await??.is_err());
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_gone_ends_the_connection() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let nobody = listener.local_addr()?;
    drop(listener);
    let proxy = FaultProxy::listen(nobody, None, 1, Path::new("/nowhere"), None).await?;
    let mut client = Client::connect(&proxy).await?;
    assert!(tokio::time::timeout(SOON, client.ask("GET", "/a")).await?.is_err());
    Ok(())
}
