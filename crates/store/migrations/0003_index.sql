-- The log of runs is the record; these tables are an index of it. Texts and events are in the log only.

CREATE TABLE new_turns (
    run           TEXT PRIMARY KEY,
    state         TEXT NOT NULL,
    model         TEXT NOT NULL,
    provider      TEXT,
    session       TEXT,                     -- as the client named it: it may not exist
    surface       TEXT NOT NULL,
    place         TEXT NOT NULL,
    prompt        TEXT NOT NULL,            -- its first characters
    begun         INTEGER NOT NULL,
    started       INTEGER,
    ended         INTEGER,
    duration      INTEGER,
    attempts      INTEGER NOT NULL DEFAULT 0,
    outcome       TEXT,                     -- "ok" or the category of a failure
    message       TEXT,                     -- of the failure
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    estimated     INTEGER NOT NULL DEFAULT 0,
    workspace     TEXT,                     -- JSON: the receipt of its worktree
    detached      INTEGER NOT NULL DEFAULT 0,
    log           TEXT,                     -- "complete" or "incomplete"
    owner         TEXT NOT NULL,
    gateway       TEXT,                     -- the mark of the process that runs it
    log_process   TEXT,                     -- position of its first record in the log
    log_segment   INTEGER,
    log_offset    INTEGER
) STRICT, WITHOUT ROWID;

INSERT INTO new_turns SELECT run, state, model, provider, session, surface, place, substr(prompt, 1, 200), begun, started,
    ended, duration, attempts, outcome, iif(outcome = 'ok', NULL, substr(answer, 1, 4000)), input_tokens, output_tokens,
    cached_tokens, estimated, workspace, detached, log, owner, gateway, NULL, NULL, NULL FROM turns;
DROP TABLE events;
DROP TABLE turns;
ALTER TABLE new_turns RENAME TO turns;
CREATE INDEX turns_session ON turns (session, run) WHERE session IS NOT NULL;
CREATE INDEX turns_owner ON turns (owner, run);
CREATE INDEX turns_begun ON turns (begun);
CREATE INDEX turns_open ON turns (run) WHERE state IN ('queued', 'running');

-- The process that claimed a key. It may be about to record the run.
ALTER TABLE repeats ADD COLUMN gateway TEXT;

-- The position up to which the log of each process is indexed.
CREATE TABLE segments (
    process  TEXT PRIMARY KEY,
    segment  INTEGER NOT NULL,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Deleted runs that still have records in a segment that a process writes.
CREATE TABLE forgotten (run TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
