-- has_waiting
SELECT 1 FROM helix.tasks WHERE space = %s AND state IN ('waiting', 'dead-letter') LIMIT 1

-- without_job
SELECT id FROM helix.tasks WHERE space = %s AND id = ANY(%s) AND job IS NULL FOR UPDATE

-- waiting_without_job
--- What an earlier version added.
SELECT id, priority FROM helix.tasks WHERE space = %s AND state = 'waiting' AND open_needs = 0 AND job IS NULL ORDER BY priority DESC,
position LIMIT %s FOR UPDATE SKIP LOCKED

-- note_job
UPDATE helix.tasks SET job = %s WHERE space = %s AND id = %s

-- forget_jobs
UPDATE helix.tasks SET job = NULL WHERE space = %s AND id = ANY(%s)

-- task_of_job
SELECT id FROM helix.tasks WHERE space = %s AND job = %s

-- find_jobs
SELECT coalesce(j.id, 0), coalesce(j.status::text, ''), t.priority, now() + make_interval(secs => %s) FROM helix.tasks AS t LEFT
JOIN helix_queue.procrastinate_jobs AS j ON j.id = t.job WHERE t.space = %s AND t.id = ANY(%s)

-- next
--- In how many seconds a job may be tried again that was given back. Each job is looked up by its number alone: by their
--- queue's name or status, or in a join, PostgreSQL reads the jobs of all workspaces.
SELECT extract(epoch FROM min((SELECT CASE WHEN status = 'todo' AND scheduled_at > clock_timestamp() THEN scheduled_at END FROM
helix_queue.procrastinate_jobs WHERE id = t.job)) - clock_timestamp())::float8 FROM helix.tasks AS t WHERE t.space = %s AND t.state =
'waiting' AND t.open_needs = 0
