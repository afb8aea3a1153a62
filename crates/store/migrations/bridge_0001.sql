-- State of bridges to chat services. Times are UTC milliseconds since 1970.

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
    session TEXT,                           -- of the index, where it may have been deleted
    model   TEXT,
    more    TEXT NOT NULL,                  -- JSON: whatever the bridge adds
    changed INTEGER NOT NULL
) STRICT;
