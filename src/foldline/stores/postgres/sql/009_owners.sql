-- lives-with: 1
-- Whose a session is. Earlier releases go on with what was there: their functions keep their form,
-- because a prepared statement whose columns change fails until its connection ends. So what gives
-- or takes an owner is a function of its own. Appends are as they were.

-- Not `owner`: functions of earlier migrations have a variable of that name.
alter table {schema}.heads add column owner_name text collate "C" not null default '';
create index heads_by_owner on {schema}.heads (tenant, owner_name, session);

-- Give a session an owner if it has neither one nor events; the owner that it has then, or when it
-- was erased. Nobody waits for who works on the session: a row that cannot be claimed is not locked.
create function {schema}.claim(
    p_tenant text, p_sid uuid, p_session text, p_owner text,
    out owner text, out moment double precision
) language plpgsql as $$
begin
    perform from {schema}.heads as h where h.sid = p_sid;
    if not found then
        moment := {schema}.begun(p_tenant, p_sid, p_session);
        if moment is not null then
            return;
        end if;
    end if;
    -- A row with a fence is not taken away by an append that is refused: see `admit`.
    update {schema}.heads as h set owner_name = p_owner, fence = greatest(h.fence, 1)
        where h.sid = p_sid and h.owner_name = '' and h.head < 0;
    select h.owner_name into owner from {schema}.heads as h where h.sid = p_sid;
    owner := coalesce(owner, '');  -- erased in this very moment
end $$;

create function {schema}.head_and_owner(p_tenant text, p_sid uuid, p_at integer)
returns table (
    owner text, head integer, floor integer, trimmed double precision,
    seq integer, kind text, edit boolean, "time" double precision, sha256 bytea, body bytea
) language sql stable as $$
    select h.owner_name, e.*
        from {schema}.head(p_tenant, p_sid, p_at) as e
        left join {schema}.heads as h on h.sid = p_sid
$$;

-- A tenant's sessions; where an owner is given, only that one's. Custom plans: one owner's sessions
-- are a range of one index, all of a tenant's of another.
create function {schema}.sessions_of(
    p_tenant text, p_after text, p_limit integer, p_owner text
) returns table (
    session text, head integer, size bigint, opened double precision, changed double precision,
    origin_name text, held boolean, owner text
) language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
    return query
        select h.session, h.head, h.size, h.opened, h.changed, h.origin_name, h.held, h.owner_name
        from {schema}.heads as h
        where h.tenant = p_tenant and h.session > p_after collate "C"
            and (p_owner is null or h.owner_name = p_owner)
        order by h.session limit p_limit;
end $$;

create function {schema}.search_of(
    p_tenant text, p_sid uuid, p_query text, p_limit integer, p_owner text
) returns table (session text, seq integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform {schema}.own(p_tenant);
    return query
        select h.session, w.seq
        from {schema}.words as w join {schema}.heads as h on h.sid = w.sid
        where w.found @@ p_query::tsquery and w.tenant = p_tenant
            and (p_sid is null or w.sid = p_sid)
            and (p_owner is null or h.owner_name = p_owner)
        order by case when p_sid is null then w.time end desc, w.seq desc limit p_limit;
end $$;

-- As before, and the fork has its origin's owner; a row that another claims in this moment is his.
create or replace function {schema}.fork(
    p_tenant text, p_sid uuid, p_new uuid, p_session text, p_to text, p_at integer,
    p_los integer[], p_his integer[],
    out outcome integer, out place bigint, out moment double precision
) language plpgsql set plan_cache_mode = force_custom_plan set enable_bitmapscan = off as $$
declare
    known record;
    named text[];
begin
    select head, floor, owner_name into known from {schema}.heads where sid = p_sid for share;
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
    select head into place from {schema}.heads
        where sid = p_new and origin is null and owner_name = '' for update;
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
        owner_name = known.owner_name, floor = known.floor, behind = true,
        size = (select coalesce(sum(octet_length(e.body)), 0) from {schema}.events as e
            where e.sid = p_new),
        edit = (select coalesce(max(e.seq), -1) from {schema}.events as e
            where e.sid = p_new and e.edit)
        where h.sid = p_new;
    outcome := 0;
end $$;

do $$
declare
    made text;
begin
    foreach made in array array[
        'claim(text, uuid, text, text)', 'head_and_owner(text, uuid, integer)',
        'sessions_of(text, text, integer, text)', 'search_of(text, uuid, text, integer, text)'
    ] loop
        execute format('revoke all on function {schema}.%s from public', made);
        if exists (select from pg_roles where rolname = '{role}') then
            execute format('grant execute on function {schema}.%s to {role}', made);
        end if;
    end loop;
end $$;
