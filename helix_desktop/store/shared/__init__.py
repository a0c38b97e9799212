"""What machines share: encrypted rows in an existing engine (PostgreSQL, S3), besides
each one's LevelDB.
"""
