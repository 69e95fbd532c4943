"""Where decisions meet the world: sessions, and the portal that makes their sync face.

    answer_limit    How long an answer may be
    arguments       What a caller gives to a session: looked at before anything is done with it
    carry           Carrying on: an earlier session's record as the first words of a new one (A-24)
    client_row      A client's messages as a log has them, in the client's order
    costs           What a session has cost until now, by what its provider counted
    export          A session written out for others to read
    fold_queue      The queue of folds on PostgreSQL
    fold_worker     A session's fold, made beside it
    fold_workers    Workers
    healing         Behind a refusal: whether to ask once more, and with what
    history         What happened in a session, for people
    hooks           What is seen of each pass over a session, and who may forbid one: A-48, R-76
    host            Where a session's model is asked
    log_handle      A log and its view, kept in step
    metrics         Passes counted for Prometheus and traced for OpenTelemetry: A-46, R-76
    model_facts     What decisions rest on: the preset, and what is believed of the model
    open            Opening a session, new or where it was left
    planning        What to send now: planned, recorded as sent, and given again byte for byte
    sdk_clients     The SDKs' clients, as far as a session calls them
    session         A session: one conversation, kept, planned and sent
    session_list    The sessions of a tenant, each told in a line
    spending        Caps on what is spent, in tokens and in money, folds included: R-49
    stored_session  A session as it was left, in a store that stays another's
    summaries       Narratives prepared ahead
    summary_port    The port between a session and whoever tells its folds' narratives
    sync            The portal
    turn            One answer of a model, into its session
    use_settings    Settings put to use

Knows stores, models and clocks. Refuses to decide: the core does.
"""
