-- lives-with: 1
-- Head, rows, pieces, forks. Of a fork also what only its ancestors have.
--
-- Custom plans: a plan for any session would lock all 64 partitions before it reads one. No bitmaps:
-- before its first analyze a partition looks as if a sort were cheaper than its own index. Stable: all
-- statements of a call see one moment, so that none shows half of what is being erased.

create function {schema}.head(
    p_tenant text, p_sid uuid, p_at integer,
    out head integer, out floor integer, out trimmed double precision,
    out seq integer, out kind text, out edit boolean, out "time" double precision,
    out sha256 bytea, out body bytea
) language plpgsql stable set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
declare
    known record;
    above record;
    owner uuid;
    place integer;
    ends integer;
begin
    select h.head, h.edit, h.floor, h.trimmed, h.origin, h.origin_at into known
        from {schema}.heads as h where h.sid = p_sid;
    if not found then
        return;
    end if;
    head := least(coalesce(p_at, known.head), known.head);
    floor := known.floor;
    trimmed := known.trimmed;
    if known.edit < 0 and known.origin is null then
        return;
    end if;
    if head >= known.edit then  -- the newest of all; a fork has a copy of it
        select e.seq, e.kind, e.edit, e.time, e.sha256, e.body
            into seq, kind, edit, "time", sha256, body
            from {schema}.events as e where e.sid = p_sid and e.seq = known.edit;
        return;
    end if;
    select e.seq, e.kind, e.edit, e.time, e.sha256, e.body into seq, kind, edit, "time", sha256, body
        from {schema}.events as e
        where e.sid = p_sid and e.edit and e.seq <= head order by e.seq desc limit 1;
    ends := head;
    place := coalesce(seq, -1);
    while known.origin is not null and head <= known.origin_at loop
        -- A place before a fork may have an edit that was not copied for it.
        ends := least(ends, known.origin_at);
        owner := known.origin;
        select h.origin, h.origin_at into known.origin, known.origin_at
            from {schema}.heads as h where h.sid = owner;
        exit when not found;
        select e.seq, e.kind, e.edit, e.time, e.sha256, e.body into above
            from {schema}.events as e
            where e.sid = owner and e.edit and e.seq <= ends and e.seq > place
            order by e.seq desc limit 1;
        if found then
            place := above.seq;
            seq := above.seq; kind := above.kind; edit := above.edit; "time" := above.time;
            sha256 := above.sha256; body := above.body;
        end if;
    end loop;
end $$;

create function {schema}.read(p_tenant text, p_sid uuid, p_los integer[], p_his integer[])
returns table (
    seq integer, kind text, edit boolean, "time" double precision, sha256 bytea, body bytea,
    pieces text
) language plpgsql stable set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
declare
    known record;
    owner uuid := p_sid;
    most integer := 2147483647;
    wanted bigint;
    given bigint;
begin
    loop
        select h.head, h.origin, h.origin_at into known from {schema}.heads as h
            where h.sid = owner;
        exit when not found;
        return query
            select e.seq, e.kind, e.edit, e.time, e.sha256, e.body, e.pieces
            from unnest(p_los, p_his) as span (lo, hi)
            cross join lateral (
                select * from {schema}.events as v
                where v.sid = owner and v.seq between span.lo and least(span.hi, most)
            ) as e;
        exit when known.origin is null;
        get diagnostics given = row_count;
        select sum(least(hi, known.head, most) - lo + 1) into wanted
            from unnest(p_los, p_his) as span (lo, hi) where lo <= least(hi, known.head, most);
        exit when given >= coalesce(wanted, 0);  -- all of it was copied
        most := least(most, known.origin_at);
        owner := known.origin;
    end loop;
end $$;

create function {schema}.pieces(p_tenant text, p_sid uuid, p_hashes text[])
returns table (hash text, body bytea)
language plpgsql stable set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
declare
    owner uuid := p_sid;
    above uuid;
begin
    loop
        select h.origin into above from {schema}.heads as h where h.sid = owner;
        exit when not found;
        return query select b.hash, b.body from {schema}.blobs as b
            where b.sid = owner and b.hash = any (p_hashes);
        exit when above is null;
        owner := above;
    end loop;
end $$;

create function {schema}.fork(
    p_tenant text, p_sid uuid, p_new uuid, p_session text, p_to text, p_at integer,
    p_los integer[], p_his integer[],
    out outcome integer, out place bigint, out moment double precision
) language plpgsql set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
declare
    known record;
    owner uuid := p_sid;
    named text[];
begin
    select head, floor into known from {schema}.heads where sid = p_sid for share;
    if not found or p_at > known.head then
        outcome := 2;
        return;
    end if;
    select head into place from {schema}.heads where sid = p_new;
    if found then
        outcome := 1;
        return;
    end if;
    moment := {schema}.begun(p_tenant, p_new, p_to);
    if moment is not null then
        outcome := 3;
        return;
    end if;
    select head into place from {schema}.heads where sid = p_new and origin is null for update;
    if place is distinct from -1 then  -- another made it in this very moment
        outcome := 1;
        place := coalesce(place, p_at);
        return;
    end if;
    insert into {schema}.events (sid, seq, edit, time, tenant, kind, pieces, sha256, body)
        select distinct on (r.seq) p_new, r.seq, r.edit, r.time, p_tenant, r.kind, r.pieces,
            r.sha256, r.body
        from {schema}.read(p_tenant, p_sid, p_los, p_his) as r order by r.seq;
    select array_agg(distinct one) into named
        from {schema}.events as e, unnest(string_to_array(e.pieces, ' ')) as one
        where e.sid = p_new;
    if named is not null then  -- its pieces are its own too: an ancestor may be erased
        insert into {schema}.blobs (sid, hash, tenant, body)
            select p_new, b.hash, p_tenant, b.body
            from {schema}.pieces(p_tenant, p_sid, named) as b on conflict do nothing;
    end if;
    insert into {schema}.unindexed (tenant, sid) values (p_tenant, p_new) on conflict do nothing;
    update {schema}.heads as h set
        head = p_at, origin = p_sid, origin_at = p_at, origin_name = p_session,
        floor = known.floor, behind = true,
        size = (select coalesce(sum(octet_length(e.body)), 0) from {schema}.events as e
            where e.sid = p_new),
        edit = (select coalesce(max(e.seq), -1) from {schema}.events as e
            where e.sid = p_new and e.edit)
        where h.sid = p_new;
    outcome := 0;
end $$;
