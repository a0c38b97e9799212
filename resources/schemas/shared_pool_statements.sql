-- there
--- Not `to_regclass`, which may return what was true before we waited for the lock.
SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = 'helix' AND relname = 'version'

-- timeline
--- The timeline's number grows when a standby takes over. Until the next checkpoint, only the recovery function shows it.
(SELECT greatest(c.timeline_id, r.min_recovery_end_timeline) FROM pg_control_checkpoint() AS c, pg_control_recovery() AS r)

-- settings
--- Makes PostgreSQL use indexes even without statistics. A page of a list comes from an index in its order, since it
--- cannot know how many rows of the workspace it would have to sort.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin',
'off', true), set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
set_config('statement_timeout', '60s', true), set_config('timezone', 'UTC', true), CASE WHEN current_setting('synchronous_commit')
= 'off' THEN set_config('synchronous_commit', 'on', true) END
