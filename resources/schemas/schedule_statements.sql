-- now
SELECT extract(epoch FROM clock_timestamp())::float8

-- list
SELECT id, handled, sealed FROM helix.schedules WHERE space = %s ORDER BY id

-- put
INSERT INTO helix.schedules(space, id, handled, sealed) VALUES (%s, %s, %s, %s) ON CONFLICT (space, id) DO UPDATE SET handled =
excluded.handled, sealed = excluded.sealed RETURNING id

-- remove
DELETE FROM helix.schedules WHERE space = %s AND id = ANY(%s) RETURNING id

-- advance
UPDATE helix.schedules SET handled = %s WHERE space = %s AND id = %s AND handled = %s RETURNING id
