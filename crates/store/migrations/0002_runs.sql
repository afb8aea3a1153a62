-- A turn is a run: its state, the process that runs it, and its results.

ALTER TABLE turns ADD COLUMN state TEXT NOT NULL DEFAULT 'queued';
ALTER TABLE turns ADD COLUMN started INTEGER;                     -- start of its first attempt
ALTER TABLE turns ADD COLUMN ended INTEGER;
ALTER TABLE turns ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN workspace TEXT;                      -- JSON: the receipt of its worktree
ALTER TABLE turns ADD COLUMN gateway TEXT;                        -- the mark of the process that runs it
ALTER TABLE turns ADD COLUMN detached INTEGER NOT NULL DEFAULT 0; -- whether it continues without its client
ALTER TABLE turns ADD COLUMN log TEXT;                            -- "complete" or "incomplete"

UPDATE turns SET started = begun, ended = begun + duration, state = CASE
    WHEN outcome IS NULL THEN 'interrupted'
    WHEN outcome = 'ok' THEN 'finished'
    WHEN outcome = 'cancelled' THEN 'cancelled'
    ELSE 'failed' END;

CREATE INDEX turns_owner ON turns (owner, run);
CREATE INDEX turns_open ON turns (run) WHERE state IN ('queued', 'running');

-- Idempotency keys: a request that is repeated with the same key is the same run.
CREATE TABLE repeats (
    owner   TEXT NOT NULL,
    key     BLOB NOT NULL CHECK (length(key) = 32),
    request BLOB NOT NULL CHECK (length(request) = 32),
    run     TEXT NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX repeats_run ON repeats (run);
CREATE INDEX repeats_created ON repeats (created);
