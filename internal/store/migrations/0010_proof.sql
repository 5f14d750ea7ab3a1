-- What the last proof of the books found, for whoever looks from outside.
CREATE TABLE proof (
  one     BIGINT PRIMARY KEY CHECK (one = 1),
  at      BIGINT NOT NULL, -- its end
  took_us BIGINT NOT NULL,
  entries BIGINT NOT NULL,
  law     TEXT NOT NULL, -- the first that is broken, or empty
  detail  TEXT NOT NULL
);
