-- lives-with: 1
-- Lists, holds, trimming, retention, erasure.

create function {schema}.sessions(p_tenant text, p_after text, p_limit integer)
returns table (
    session text, head integer, size bigint, opened double precision, changed double precision,
    origin_name text, held boolean
) language sql as $$
    select h.session, h.head, h.size, h.opened, h.changed, h.origin_name, h.held
        from {schema}.heads as h
        where h.tenant = p_tenant and h.session > p_after collate "C"
        order by h.session limit p_limit
$$;

create function {schema}.hold(p_tenant text, p_sid uuid, p_on boolean) returns boolean
language plpgsql as $$
begin
    update {schema}.heads set held = p_on where sid = p_sid;
    return found;
end $$;

create function {schema}.trim(p_tenant text, p_sid uuid, p_floor integer, p_keep integer[])
returns bigint language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    known record;
    gone record;
begin
    select head, floor into known from {schema}.heads where sid = p_sid for update;
    if not found or p_floor <= known.floor or p_floor > known.head then
        return 0;
    end if;
    with deleted as (
        delete from {schema}.events as e
            where e.sid = p_sid and e.seq < p_floor and e.seq <> all (p_keep)
            returning octet_length(e.body) as size
    ) select count(*) as rows, coalesce(sum(d.size), 0) as size into gone from deleted as d;
    delete from {schema}.blobs as b where b.sid = p_sid and not exists (
        select from {schema}.events as e
        where e.sid = p_sid and e.pieces is not null
        and b.hash = any (string_to_array(e.pieces, ' '))
    );
    perform {schema}.forget(p_tenant, p_sid, p_floor, p_keep);
    update {schema}.heads set floor = p_floor, trimmed = {schema}.clock(), size = size - gone.size
        where sid = p_sid;
    return gone.rows;
end $$;

-- The sessions that a rule leaves no room for, the least lately changed first.
create function {schema}.leaving(
    p_tenant text, p_seconds double precision, p_sessions bigint, p_size numeric
) returns table (session text, changed double precision) language sql as $$
    with every as (
        select count(*) as sessions, coalesce(sum(h.size), 0) as size
            from {schema}.heads as h where h.tenant = p_tenant
    ), free as (
        select h.session, h.size, h.changed,
            row_number() over before - 1 as gone,
            sum(h.size) over before - h.size as gone_size
        from {schema}.heads as h where h.tenant = p_tenant and not h.held
        window before as (order by h.changed, h.session rows unbounded preceding)
    )
    select f.session, f.changed from free as f, every as e
        where f.changed < {schema}.clock() - p_seconds
        or e.sessions - f.gone > p_sessions
        or e.size - f.gone_size > p_size
        order by f.changed, f.session
$$;

create function {schema}.weighed(p_tenant text, p_sid uuid)
returns table (events bigint, size bigint)
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    return query select count(*), coalesce(sum(octet_length(e.body)), 0)::bigint
        from {schema}.events as e where e.sid = p_sid;
end $$;

-- From here on there is no such session, and there will be none; whether there was something. What
-- is held or was changed since `p_unless` stays: somebody came back to it after it was listed.
create function {schema}.erase(
    p_tenant text, p_sid uuid, p_session text, p_unless double precision
) returns boolean language plpgsql as $$
declare
    known record;
begin
    perform pg_advisory_xact_lock(hashtextextended(p_sid::text, 0));
    perform from {schema}.erased where sid = p_sid and not swept;
    if found then
        return true;  -- an erasure that was cut short goes on
    end if;
    select held, changed into known from {schema}.heads where sid = p_sid for update;
    if found and p_unless is not null and (known.held or known.changed > p_unless) then
        return false;
    end if;
    if not found then
        perform from {schema}.side where sid = p_sid limit 1;
        if not found or p_session = '' then  -- '' is the tenant, not a session
            return false;
        end if;
        perform {schema}.begun(p_tenant, p_sid, p_session);
        perform from {schema}.heads where sid = p_sid for update;
    end if;
    insert into {schema}.erased (sid, tenant, time) values (p_sid, p_tenant, {schema}.clock())
        on conflict (sid) do update set time = excluded.time, swept = false;
    delete from {schema}.side where sid = p_sid;
    delete from {schema}.unindexed where tenant = p_tenant and sid = p_sid;
    delete from {schema}.heads where sid = p_sid;
    return true;
end $$;

-- Take away what is left of an erased session, so many rows at a time; how many there were.
create function {schema}.sweep(p_tenant text, p_sid uuid, p_limit integer)
returns table (events bigint, size bigint)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    last integer;
begin
    perform from {schema}.erased where sid = p_sid;
    if not found then
        return;
    end if;
    select max(s.seq) into last from (
        select e.seq from {schema}.events as e where e.sid = p_sid order by e.seq limit p_limit
    ) as s;
    return query with deleted as (
        delete from {schema}.events as e where e.sid = p_sid and e.seq <= last
            returning octet_length(e.body) as size
    ) select count(*), coalesce(sum(d.size), 0)::bigint from deleted as d;
    perform from {schema}.events as e where e.sid = p_sid limit 1;
    if not found then
        delete from {schema}.seen where sid = p_sid;
        delete from {schema}.blobs where sid = p_sid;
        perform {schema}.forget(p_tenant, p_sid, null, null);
        update {schema}.erased set swept = true where sid = p_sid;
    end if;
end $$;

create function {schema}.unswept(p_tenant text) returns table (sid uuid) language sql as $$
    select e.sid from {schema}.erased as e where e.tenant = p_tenant and not e.swept
$$;
