use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::scratch::Scratch;

/// A script in the controller's place.
fn fake(folder: &Scratch, script: &str) -> Result<Options> {
    let binary = folder.path().join("fake");
    fs::write(&binary, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    Ok(Options {
        name: "fake".to_owned(),
        binary,
        kubeconfig: PathBuf::new(),
        folder: folder.path().to_owned(),
        arguments: Vec::new(),
        environment: BTreeMap::new(),
    })
}

#[tokio::test]
async fn a_panic_in_the_log_is_an_error_of_whoever_waits_for_the_end() -> Result<()> {
    let folder = Scratch::new("panics")?;
    let options = fake(&folder, "echo \"thread 'main' panicked at src/main.rs\"")?;
    let controller = Controller::start(&options)?;
    let error = controller.ended(Duration::from_secs(10)).await.expect_err("it panicked");
    assert!(error.to_string().contains("panicked at src/main.rs"), "{error:#}");
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(controller)));
    assert!(dropped.is_err(), "nor is it dropped without a word");
    // The next one of the name writes into the same file, and has not panicked.
    let next = Controller::start(&fake(&folder, "echo fine")?)?;
    next.ended(Duration::from_secs(10)).await.map(drop)
}

#[tokio::test]
async fn one_that_ends_is_started_again_until_it_is_stopped() -> Result<()> {
    let folder = Scratch::new("supervised")?;
    let options = fake(&folder, "echo started; exec sleep 1000")?;
    let starts = async || {
        let text = fs::read_to_string(folder.path().join("fake.log"))?;
        anyhow::Ok(text.lines().count())
    };
    let started = async |times: usize| {
        eventually("it was started", Duration::from_secs(10), async || {
            let so_far = starts().await?;
            ensure!(so_far == times, "{so_far} times");
            Ok(())
        })
        .await
    };
    let supervisor = Supervisor::start(options);
    started(1).await?;
    supervisor.kill().await?;
    started(2).await?;
    let ends = supervisor.stop().await?;
    assert_eq!(ends, Ends { killed: 1, by_itself: 0 });
    Ok(())
}

#[tokio::test]
async fn an_end_that_is_no_orderly_failure_is_an_error_of_the_supervisor() -> Result<()> {
    for (script, expected) in [("exit 1", None), ("exit 101", Some("101")), ("kill -ABRT $$", Some("signal"))] {
        let folder = Scratch::new("ends")?;
        // Only the first time; then it runs.
        let script = format!("if mkdir \"$0-ran\"; then {script}; fi; exec sleep 1000");
        let supervisor = Supervisor::start(fake(&folder, &script)?);
        let result = match expected {
            None => {
                eventually("it was started twice", Duration::from_secs(10), async || {
                    ensure!(supervisor.starts() == 2, "{} times", supervisor.starts());
                    Ok(())
                })
                .await?;
                supervisor.stop().await
            }
            Some(_) => supervisor.failed().await,
        };
        match (result, expected) {
            (Ok(ends), None) => assert_eq!(ends, Ends { killed: 0, by_itself: 1 }),
            (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{error:#}"),
            (result, _) => bail!("{script}: {result:?}"),
        }
    }
    Ok(())
}
