-- Times are UTC milliseconds since 1970. Rows that belong to a session are deleted with it.

CREATE TABLE sessions (
    id       TEXT PRIMARY KEY,              -- our own: a UUID, version 7
    owner    TEXT NOT NULL,
    model    TEXT NOT NULL,
    provider TEXT NOT NULL,
    repo     TEXT NOT NULL,
    native   TEXT,                          -- the provider's own name, once a turn has succeeded
    title    TEXT NOT NULL,
    parent   TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    created  INTEGER NOT NULL,
    used     INTEGER NOT NULL,
    turns    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sessions_used ON sessions (used, id);
CREATE INDEX sessions_repo ON sessions (repo, used, id);
CREATE INDEX sessions_native ON sessions (native, provider) WHERE native IS NOT NULL;
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;

CREATE TABLE chains (
    owner    TEXT NOT NULL,
    model    TEXT NOT NULL,
    hash     BLOB NOT NULL CHECK (length(hash) = 32),
    session  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    messages INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    PRIMARY KEY (owner, model, hash, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX chains_session ON chains (session);

CREATE TABLE turns (
    id            INTEGER PRIMARY KEY,
    run           TEXT NOT NULL UNIQUE,
    session       TEXT REFERENCES sessions (id) ON DELETE CASCADE,
    owner         TEXT NOT NULL,
    surface       TEXT NOT NULL,
    place         TEXT NOT NULL,
    model         TEXT NOT NULL,
    prompt        TEXT NOT NULL,
    begun         INTEGER NOT NULL,
    provider      TEXT,
    outcome       TEXT,                     -- "ok" or the category of a failure; none while it runs
    answer        TEXT,                     -- or what the failure said
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    estimated     INTEGER NOT NULL DEFAULT 0,
    duration      INTEGER
) STRICT;
CREATE INDEX turns_session ON turns (session, id);
CREATE INDEX turns_begun ON turns (begun);

-- Not WITHOUT ROWID: an event may be larger than a page.
CREATE TABLE events (
    turn     INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    event    TEXT NOT NULL,
    cut      INTEGER,                       -- how many bytes it had, if not all are here
    UNIQUE (turn, sequence)
) STRICT;

CREATE TABLE cursors (
    place   TEXT PRIMARY KEY,
    message TEXT NOT NULL,
    changed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    message  TEXT PRIMARY KEY,
    place    TEXT NOT NULL,
    payload  TEXT NOT NULL,
    state    TEXT NOT NULL DEFAULT 'received' CHECK (state IN ('received', 'answering', 'answered', 'failed')),
    detail   TEXT,
    received INTEGER NOT NULL,
    changed  INTEGER NOT NULL
) STRICT;
CREATE INDEX inbox_pending ON inbox (place) WHERE state IN ('received', 'answering');
CREATE INDEX inbox_changed ON inbox (changed);

CREATE TABLE bindings (
    place   TEXT PRIMARY KEY,
    session TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    model   TEXT,
    more    TEXT NOT NULL,                  -- JSON: whatever the bridge adds
    changed INTEGER NOT NULL
) STRICT;
CREATE INDEX bindings_session ON bindings (session) WHERE session IS NOT NULL;
