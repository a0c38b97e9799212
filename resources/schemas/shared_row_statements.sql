-- put
WITH new AS (INSERT INTO helix.rows(name, month, space, key, body) SELECT r.name, date_trunc('month', now() AT TIME ZONE 'UTC')::date, %b,
r.key, r.body FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS r(name, key, body) WHERE NOT EXISTS (SELECT FROM helix.rows AS held
WHERE held.name = r.name) AND NOT EXISTS (SELECT FROM helix.forgotten AS gone WHERE gone.name = r.name) ORDER BY r.name ON CONFLICT DO
NOTHING RETURNING octet_length(body) AS size) INSERT INTO helix.usage AS used(space, slot, rows, bytes) SELECT %b, pg_backend_pid() %% 256,
count(*), sum(size) FROM new HAVING count(*) > 0 ON CONFLICT (space, slot) DO UPDATE SET rows = used.rows + excluded.rows, bytes =
used.bytes + excluded.bytes

-- get
SELECT name, key, body FROM helix.rows AS r WHERE name = ANY(%b) AND NOT EXISTS (SELECT FROM helix.forgotten AS gone WHERE gone.name =
r.name)

-- lacking
SELECT name FROM unnest(%b::bytea[]) AS asked(name) WHERE NOT EXISTS (SELECT FROM helix.rows AS held WHERE held.name = asked.name) AND NOT
EXISTS (SELECT FROM helix.forgotten AS gone WHERE gone.name = asked.name)

-- drop
WITH gone AS (DELETE FROM helix.rows WHERE name = ANY(%b) AND space = %b RETURNING octet_length(body) AS size) INSERT INTO helix.usage AS
used(space, slot, rows, bytes) SELECT %b, -1, -count(*), -sum(size) FROM gone HAVING count(*) > 0 ON CONFLICT (space, slot) DO UPDATE SET
rows = used.rows + excluded.rows, bytes = used.bytes + excluded.bytes

-- drop_replaced
WITH gone AS (DELETE FROM helix.rows WHERE name = ANY(%b) AND space = %b AND EXISTS (SELECT FROM helix.heads AS moved WHERE moved.space = %b
AND moved.name = %b AND moved.changed = pg_current_xact_id()::text::bigint) RETURNING octet_length(body) AS size) INSERT INTO helix.usage AS
used(space, slot, rows, bytes) SELECT %b, -1, -count(*), -sum(size) FROM gone HAVING count(*) > 0 ON CONFLICT (space, slot) DO UPDATE SET
rows = used.rows + excluded.rows, bytes = used.bytes + excluded.bytes

-- bury
INSERT INTO helix.forgotten(name, space, word) SELECT t.name, %b, t.word FROM unnest(%b::bytea[], %b::bytea[]) AS t(name, word) ORDER BY
t.name ON CONFLICT DO NOTHING

-- old
SELECT name FROM helix.rows WHERE space = %b AND name > %b AND written < now() - make_interval(secs => %s) ORDER BY name LIMIT %s
