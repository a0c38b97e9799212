-- set
INSERT INTO {t}notes(space, name, until, amount) VALUES (%s, %s, CASE WHEN %s <> 0 THEN {now} + %s ELSE 0 END, %s) ON CONFLICT (space, name)
DO UPDATE SET until = excluded.until, amount = excluded.amount RETURNING name

-- live
INSERT INTO {t}notes AS n (space, name, until, amount) VALUES (%s, %s, {now} + %s, 0) ON CONFLICT (space, name) DO UPDATE SET until =
excluded.until RETURNING amount

-- remove
DELETE FROM {t}notes WHERE space = %s AND (name = %s OR (until > 0 AND until < {now} - 86400)) RETURNING name

-- remove_beginning
DELETE FROM {t}notes WHERE space = %s AND substr(name, 1, %s) = %s RETURNING name

-- release_reservations
DELETE FROM {t}notes WHERE space = %s AND name LIKE 'reserved %%' AND name NOT LIKE %s RETURNING name

-- drain
UPDATE {t}notes SET amount = 1 WHERE space = %s AND name LIKE 'worker %%' AND (%s = '' OR name = %s) AND until > {now} AND until < {now} + {longest} RETURNING name

-- timeline
INSERT INTO {t}notes AS n (space, name, until, amount) SELECT %s, 'timeline', 0, {timeline} WHERE NOT EXISTS (SELECT 1 FROM {t}notes WHERE
space = %s AND name = 'timeline' AND amount = {timeline}) ON CONFLICT (space, name) DO UPDATE SET until = {now} + %s, amount =
excluded.amount WHERE n.amount <> excluded.amount RETURNING name

-- charge_cut_off
INSERT INTO {t}notes AS n (space, name, until, amount) SELECT %s, %s, CASE WHEN %s = 1 THEN {midnight} ELSE 0 END, request.amount FROM
{t}notes request WHERE request.space = %s AND request.name = %s ON CONFLICT (space, name) DO UPDATE SET until = excluded.until, amount =
excluded.amount + CASE WHEN n.until = excluded.until THEN n.amount ELSE 0 END RETURNING name

-- charge
INSERT INTO {t}notes AS n (space, name, until, amount) SELECT %s, %s, CASE WHEN %s = 1 THEN {midnight} ELSE 0 END, CASE WHEN %s > charged
THEN %s - charged ELSE 0 END FROM {t}tasks WHERE space = %s AND id = %s AND claims = %s AND state = 'running' ON CONFLICT (space, name) DO
UPDATE SET until = excluded.until, amount = excluded.amount + CASE WHEN n.until = excluded.until THEN n.amount ELSE 0 END RETURNING name
