-- People who sign in to the console.
CREATE TABLE member (
  id         TEXT PRIMARY KEY,
  email      TEXT NOT NULL UNIQUE, -- in lower case
  operator   BOOLEAN NOT NULL DEFAULT FALSE,
  password   TEXT NOT NULL DEFAULT '', -- argon2id as a PHC string; empty where there is none
  totp       BYTEA, -- secret of one-time codes; NULL where there is none
  totp_step  BIGINT NOT NULL DEFAULT 0, -- of the last code that was used: none is taken twice
  theme      TEXT NOT NULL DEFAULT '' CHECK (theme IN ('', 'light', 'dark')),
  shortcuts  BOOLEAN NOT NULL DEFAULT TRUE,
  created_at BIGINT NOT NULL
);

-- Whose accounts they are.
CREATE TABLE membership (
  account_id TEXT NOT NULL REFERENCES account (id),
  member_id  TEXT NOT NULL REFERENCES member (id),
  role       TEXT NOT NULL CHECK (role IN ('owner', 'member')),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (account_id, member_id)
) WITHOUT ROWID;
CREATE INDEX membership_member ON membership (member_id);

-- Who is signed in where. The browser has the token, this table its hash.
CREATE TABLE session (
  id         TEXT PRIMARY KEY,
  hash       BYTEA NOT NULL UNIQUE, -- SHA-256
  member_id  TEXT NOT NULL REFERENCES member (id),
  account_id TEXT NOT NULL DEFAULT '', -- that is looked at; empty is none
  stage      TEXT NOT NULL CHECK (stage IN ('open', 'code')), -- code: the password was right, a code is missing
  address    TEXT NOT NULL,
  agent      TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL, -- to the minute
  proved_at  BIGINT NOT NULL -- when the member last proved who it is
);
CREATE INDEX session_member ON session (member_id);

-- Links that let somebody in, once.
CREATE TABLE door_link (
  hash       BYTEA PRIMARY KEY, -- SHA-256 of the token
  id         TEXT NOT NULL UNIQUE,
  kind       TEXT NOT NULL CHECK (kind IN ('operator', 'invitation')),
  account_id TEXT NOT NULL DEFAULT '', -- that it leads into; empty is none
  role       TEXT NOT NULL DEFAULT '' CHECK (role IN ('', 'owner', 'member')),
  email      TEXT NOT NULL DEFAULT '', -- of who is invited
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at    BIGINT
);
CREATE INDEX door_link_account ON door_link (account_id);

-- Keys in members' devices.
CREATE TABLE passkey (
  id           BYTEA PRIMARY KEY, -- the credential's
  member_id    TEXT NOT NULL REFERENCES member (id),
  name         TEXT NOT NULL,
  credential   TEXT NOT NULL, -- public key and counters, as JSON
  created_at   BIGINT NOT NULL,
  last_used_at BIGINT
);
CREATE INDEX passkey_member ON passkey (member_id);

-- What lets a member in who has lost the device that makes codes.
CREATE TABLE recovery_code (
  member_id TEXT NOT NULL REFERENCES member (id),
  hash      BYTEA NOT NULL, -- SHA-256
  used_at   BIGINT,
  PRIMARY KEY (member_id, hash)
) WITHOUT ROWID;
