-- lives-with: 1
-- Search, on a table of its own. Row-level security would switch its index off, because `@@` is not
-- leakproof: so nobody may read the table, and these functions, as its owner, compare the tenant.

create function {schema}.own(p_tenant text) returns void
language plpgsql stable as $$
begin
    if p_tenant is distinct from {schema}.tenant() then
        raise exception 'a search for another tenant than the one of this transaction'
            using errcode = 'insufficient_privilege';
    end if;
end $$;

create function {schema}.unindexed_sessions(p_tenant text, p_sid uuid)
returns table (sid uuid, indexed integer, head integer) language sql as $$
    select h.sid, h.indexed, h.head
        from {schema}.unindexed as u join {schema}.heads as h on h.sid = u.sid
        where u.tenant = p_tenant and (p_sid is null or u.sid = p_sid)
$$;

create function {schema}.spoken(p_tenant text, p_sid uuid, p_after integer)
returns table (seq integer, "time" double precision, body bytea)
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    return query select e.seq, e.time, e.body from {schema}.events as e
        where e.sid = p_sid and e.seq > p_after
        and e.kind in ('user_said', 'model_said', 'tool_returned') order by e.seq limit 500;
end $$;

-- Take in the words of some rows, unless another did; whether it was done.
create function {schema}.learn(
    p_tenant text, p_sid uuid, p_from integer, p_to integer,
    p_seqs integer[], p_times double precision[], p_words text[]
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ends integer;
begin
    perform {schema}.own(p_tenant);
    select head into ends from {schema}.heads where sid = p_sid and indexed = p_from for update;
    if not found then
        return false;
    end if;
    insert into {schema}.words (sid, seq, time, tenant, found)
        select p_sid, s, t, p_tenant, array_to_tsvector(string_to_array(w, ' '))
        from unnest(p_seqs, p_times, p_words) as given (s, t, w)
        where exists (select from {schema}.events as e where e.sid = p_sid and e.seq = s)
        on conflict do nothing;
    update {schema}.heads set indexed = p_to, behind = p_to < ends where sid = p_sid;
    if p_to >= ends then
        delete from {schema}.unindexed where tenant = p_tenant and sid = p_sid;
    end if;
    return true;
end $$;

create function {schema}.search(p_tenant text, p_sid uuid, p_query text, p_limit integer)
returns table (session text, seq integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform {schema}.own(p_tenant);
    return query
        select h.session, w.seq
        from {schema}.words as w join {schema}.heads as h on h.sid = w.sid
        where w.found @@ p_query::tsquery and w.tenant = p_tenant
            and (p_sid is null or w.sid = p_sid)
        order by case when p_sid is null then w.time end desc, w.seq desc limit p_limit;
end $$;

-- Leave no word of some places of a session in the index; of all, where the floor is null.
create function {schema}.forget(p_tenant text, p_sid uuid, p_floor integer, p_keep integer[])
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform {schema}.own(p_tenant);
    delete from {schema}.words as w where w.sid = p_sid and w.tenant = p_tenant
        and (p_floor is null or w.seq < p_floor and w.seq <> all (p_keep));
end $$;
