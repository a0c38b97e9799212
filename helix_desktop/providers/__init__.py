"""Models over HTTP, compiled from one provider-neutral request."""
