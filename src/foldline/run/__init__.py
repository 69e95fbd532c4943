"""Where decisions meet the world: sessions, and the portal that makes their sync face."""
