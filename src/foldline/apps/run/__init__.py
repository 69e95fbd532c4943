"""`foldline run`: start a coding agent behind a private gateway, and say what it saved.

agent_setups      what each agent needs to speak to the gateway, how it is logged in, its recall
private_gateway   the gateway's process, restarted when it dies; the run's folder
foreground        the agent in the foreground, its signals and its exit code
run_report        what the run cost and saved
"""
