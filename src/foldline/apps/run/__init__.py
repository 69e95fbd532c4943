"""`foldline run`: start a coding agent behind a private gateway, and say what it saved.

agent_setups      what each agent needs to speak to the gateway, and how it is logged in
agent_recall      tools with which an agent looks back, for one run
private_gateway   the gateway's process, restarted when it dies
run_folder        its temporary folder, and those that killed runs have left
foreground        the agent in the foreground, its signals and its exit code
run_report        what the run cost and saved
"""
