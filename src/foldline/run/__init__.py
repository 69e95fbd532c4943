"""Where decisions meet the world: sessions, and the portal that makes their sync face.

    session    the verbs; `open` and `carry` begin one, `sync` is its face without `await`
    live       a log and its view in step: leases, appends, what others wrote
    asking     what is sent: planned, recorded, again      bounds     how long an answer may be
    turn       one answer of a model into its session      refused    what heals a refusal
    host       where a session's model is asked, and nowhere else
    given      what callers give, refused in words         clients    the SDKs' clients, by shape
    facts      what decisions rest on                      settings/  files, environment, flags
    history    the past, for people                        listed, left, export, bill
    row        a client's messages as a log has them
    spend      caps, and what was spent
    passes     who watches folds, who forbids them         metrics    the same counted and traced
    narrator   the port to who tells a fold                preparing  told in this process
    deferring  left to a queue     worker, jobs            folds made beside a session

Knows stores, models and clocks. Refuses to decide: the core does.
"""
