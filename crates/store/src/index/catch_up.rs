//! Indexes what processes have written to the log and not to the database: because they were killed, or because the
//! database is new.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::log_rows::{IndexScope, LogFold, LogRows, apply_late};
use crate::error::StoreError;
use crate::log::{LogFolder, LogPosition, LogRecord, LogWriter, ProcessLife, ProcessSegments};
use crate::run_index::count;
use crate::store::Store;
use crate::upgrade;

/// Rows that one transaction takes.
const BATCH_ROWS: usize = 2048;

/// Runs after which progress is logged.
const PROGRESS_RUNS: u64 = 20_000;

impl Store {
    /// Indexes what killed processes have written to the log. `own` is the writer of this process.
    pub async fn catch_up(&self, own: Option<&LogWriter>) -> Result<(), StoreError> {
        self.follow_file().await;
        let _running = self.indexing().running.lock().await;
        let indexed = match self.log() {
            Some(folder) => catch_up(self, folder, own.map(LogWriter::process)).await.map(drop),
            None => Ok(()),
        };
        if let (Ok(()), Some(state)) = (&indexed, self.state_folder()) {
            upgrade::remove_old_files(&state);
        }
        // Queries answer what they can even if a part of the log cannot be read.
        if matches!(indexed, Ok(()) | Err(StoreError::Log(_))) {
            self.indexing().ready.send_replace(true);
        }
        indexed
    }
}

impl Store {
    /// Indexes what this process has written to the log.
    pub(super) async fn index_own(&self, log: &LogWriter) -> Result<(), StoreError> {
        let Some(folder) = self.log() else { return Ok(()) };
        let processes = folder.processes().map_err(StoreError::Log)?;
        if let Some(own) = processes.into_iter().find(|process| *process.process == *log.process()) {
            let first = LogPosition { process: Arc::clone(&own.process), segment: 0, offset: 0 };
            let from = indexed(self).await?.remove(&own.process).unwrap_or(first);
            index_process(self, folder, &own, from, IndexScope::Everything, &mut Progress::default()).await?;
        }
        Ok(())
    }
}

/// Indexes everything that the database does not have. Returns the number of runs.
pub(super) async fn catch_up(store: &Store, folder: &LogFolder, own: Option<&str>) -> Result<u64, StoreError> {
    let started = Instant::now();
    let mut progress = Progress::default();
    let indexed = indexed(store).await?;
    let mut unreadable = None;
    for process in folder.processes().map_err(StoreError::Log)? {
        if own == Some(&*process.process) {
            continue;
        }
        match index_other(store, folder, &process, indexed.get(&process.process), &mut progress).await {
            Err(StoreError::Log(error)) => {
                tracing::warn!(%error, process = &*process.process, "a part of the log cannot be read");
                unreadable = Some(error);
            }
            indexed => indexed?,
        }
    }
    if !progress.late.is_empty() {
        let mut transaction = store.transaction().await?;
        for (run, record) in &progress.late {
            apply_late(&mut transaction, run, record).await?;
        }
        transaction.commit().await?;
    }
    if progress.runs > 0 {
        // Runs that were deleted while a process wrote the segment that they are in.
        let query = "DELETE FROM turns WHERE run IN (SELECT run FROM forgotten)";
        sqlx::query(query).execute(&store.writing()).await?;
        let millis = started.elapsed().as_millis();
        tracing::info!(runs = progress.runs, millis, "indexed the log");
    }
    unreadable.map_or(Ok(progress.runs), |error| Err(StoreError::Log(error)))
}

/// Indexes what another process has written behind the position `known`.
async fn index_other(
    store: &Store,
    folder: &LogFolder,
    process: &ProcessSegments,
    known: Option<&LogPosition>,
    progress: &mut Progress,
) -> Result<(), StoreError> {
    if !process.has_lock && known.is_some_and(|known| is_complete(folder, process, known)) {
        return Ok(());
    }
    let life = folder.life(&process.process).map_err(StoreError::Log)?;
    let is_alive = matches!(life, ProcessLife::Alive);
    let scope = if is_alive && known.is_some() { IndexScope::Living } else { IndexScope::Everything };
    let first = LogPosition { process: Arc::clone(&process.process), segment: 0, offset: 0 };
    let end = index_process(store, folder, process, known.cloned().unwrap_or(first), scope, progress).await?;
    if !is_alive {
        cut_torn_tail(folder, &end).map_err(StoreError::Log)?;
    }
    if let ProcessLife::Killed(lock) = life {
        lock.remove();
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Progress {
    runs: u64,
    reported: u64,
    /// Records about runs of other processes. Their rows may not have been there yet.
    late: Vec<(String, LogRecord)>,
}

/// The position up to which each process is indexed.
pub(crate) async fn indexed(store: &Store) -> Result<HashMap<Arc<str>, LogPosition>, StoreError> {
    let query = sqlx::query_as("SELECT process, segment, position FROM segments");
    let rows: Vec<(String, i64, i64)> = query.fetch_all(&store.reading()).await?;
    let position = |(process, segment, offset): (String, i64, i64)| {
        let process: Arc<str> = process.into();
        let segment = u32::try_from(segment).unwrap_or_default();
        (Arc::clone(&process), LogPosition { process, segment, offset: count(offset) })
    };
    Ok(rows.into_iter().map(position).collect())
}

/// Whether a process that has ended is indexed up to the end of its last segment.
fn is_complete(folder: &LogFolder, process: &ProcessSegments, known: &LogPosition) -> bool {
    let Some(last) = process.segments.last() else { return true };
    let length = || fs::metadata(folder.segment_path(&process.process, *last)).map_or(0, |file| file.len());
    *last < known.segment || (*last == known.segment && length() <= known.offset)
}

/// Indexes one process. Returns the end of the last complete line.
async fn index_process(
    store: &Store,
    folder: &LogFolder,
    process: &ProcessSegments,
    from: LogPosition,
    scope: IndexScope,
    progress: &mut Progress,
) -> Result<LogPosition, StoreError> {
    // A thread of its own reads: it does not hold up the runtime, and reads on while a transaction is written.
    let (read, mut batches) = mpsc::channel(1);
    let (folder, process) = (folder.clone(), process.clone());
    let reader = tokio::task::spawn_blocking(move || read_rows(&folder, &process, from, scope, &read));
    while let Some(rows) = batches.recv().await {
        progress.write(store, rows).await?;
    }
    reader.await.map_err(io::Error::other).flatten().map_err(StoreError::Log)
}

/// Reads the rows of a process in batches. Returns the end of the last complete line.
fn read_rows(
    folder: &LogFolder,
    process: &ProcessSegments,
    from: LogPosition,
    scope: IndexScope,
    batches: &mpsc::Sender<LogRows>,
) -> io::Result<LogPosition> {
    let stopped = |_| io::Error::new(ErrorKind::BrokenPipe, "the rows cannot be written");
    let mut fold = LogFold::new(scope);
    let mut end = from;
    let first = end.segment;
    for &number in process.segments.iter().filter(|number| **number >= first) {
        if number != end.segment {
            end = LogPosition { segment: number, offset: 0, ..end };
        }
        let mut reader = match folder.open_segment(&process.process, number, end.offset) {
            // Retention may have removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        while let Some((offset, line)) = reader.next()? {
            if !line.is_event()
                && let Ok(record) = serde_json::from_slice(line.record)
            {
                fold.add(line.run, record, LogPosition { offset, ..end.clone() });
            }
            if fold.len() >= BATCH_ROWS {
                // Open runs stay in memory, so the position in the database must not pass their first records.
                batches.blocking_send(fold.take()).map_err(stopped)?;
            }
        }
        end.offset = reader.offset();
    }
    batches.blocking_send(fold.finish(&end)).map_err(stopped)?;
    Ok(end)
}

impl Progress {
    async fn write(&mut self, store: &Store, rows: LogRows) -> Result<(), StoreError> {
        rows.write(store).await?;
        self.runs += rows.ended.len() as u64;
        self.late.extend(rows.late);
        if self.runs >= self.reported + PROGRESS_RUNS {
            self.reported = self.runs;
            tracing::info!(runs = self.runs, "indexing the log");
        }
        Ok(())
    }
}

/// Removes the remains of a write that a process did not finish.
fn cut_torn_tail(folder: &LogFolder, end: &LogPosition) -> io::Result<()> {
    let path = folder.segment_path(&end.process, end.segment);
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // Also gives back the space that was reserved. The file is shorter if it was rewritten.
    if file.metadata()?.len() >= end.offset { file.set_len(end.offset) } else { Ok(()) }
}
