-- lives-with: 1
-- Append, leases, the side table. Outcomes: 0 done, 1 the end is another, 2 the fence is another,
-- 3 erased. They are told, not raised: in a pipeline each append is a transaction of its own.

create function {schema}.clock() returns double precision
language sql volatile as $$ select date_part('epoch', clock_timestamp()) $$;

-- Make a session's row; when it was erased, if it was.
create function {schema}.begun(p_tenant text, p_sid uuid, p_session text) returns double precision
language plpgsql as $$
declare
    moment double precision;
begin
    insert into {schema}.heads (sid, tenant, session, opened, changed)
        values (p_sid, p_tenant, p_session, {schema}.clock(), {schema}.clock())
        on conflict do nothing;
    -- Asked behind the insert: an erasure that was under way has held it up until it was done.
    select time into moment from {schema}.erased where sid = p_sid;
    if found then
        delete from {schema}.heads where sid = p_sid;
    end if;
    return moment;
end $$;

-- Move a session's head by some rows, if its conditions hold: the last place, or why not. Outcome -1
-- is a delivery that was there before.
create function {schema}.admit(
    p_tenant text, p_sid uuid, p_session text, p_after integer, p_fence bigint, p_once bytea,
    p_rows integer, p_edit integer, p_size bigint, p_told double precision,
    out outcome integer, out place bigint, out moment double precision
) language plpgsql as $$
declare
    known record;
    before integer;
begin
    select head, fence, behind into known from {schema}.heads where sid = p_sid for update;
    if not found then
        moment := {schema}.begun(p_tenant, p_sid, p_session);
        if moment is not null then
            outcome := 3;
            return;
        end if;
        select head, fence, behind into known from {schema}.heads where sid = p_sid for update;
    end if;
    if p_fence <> known.fence then
        outcome := 2;
        place := known.fence;
    elsif p_after <> known.head then
        outcome := 1;
        place := known.head;
    else
        outcome := 0;
        place := known.head + p_rows;
    end if;
    if p_once is not null then
        if outcome = 0 then
            insert into {schema}.seen (sid, key, seq, tenant)
                values (p_sid, p_once, place, p_tenant) on conflict do nothing;
        end if;
        if outcome > 0 or not found then  -- whatever the log has become since
            select seq into before from {schema}.seen where sid = p_sid and key = p_once;
            if found then
                outcome := -1;
                place := before;
                return;
            end if;
        end if;
    end if;
    if outcome > 0 then
        if known.head < 0 and known.fence = 0 then  -- made for nothing
            delete from {schema}.heads where sid = p_sid;
        end if;
        return;
    end if;
    if not known.behind then
        insert into {schema}.unindexed (tenant, sid) values (p_tenant, p_sid)
            on conflict do nothing;
    end if;
    update {schema}.heads set
        head = place, size = size + p_size, changed = p_told, behind = true,
        edit = case when p_edit is null then edit else known.head + 1 + p_edit end
        where sid = p_sid;
end $$;

-- One row without pieces: what most appends are.
create function {schema}.append_one(
    p_tenant text, p_sid uuid, p_session text, p_after integer, p_fence bigint, p_once bytea,
    p_kind text, p_edit boolean, p_time double precision, p_sha256 bytea, p_body bytea,
    out outcome integer, out place bigint, out moment double precision
) language plpgsql as $$
declare
    told double precision := date_part('epoch', clock_timestamp());
    admitted record;
begin
    if p_once is null then  -- the plain case: the head moves where all conditions hold
        update {schema}.heads set
            head = head + 1, size = size + octet_length(p_body), changed = told,
            edit = case when p_edit then head + 1 else edit end
            where sid = p_sid and behind
            and (p_after is null or head = p_after) and (p_fence is null or fence = p_fence)
            returning 0, head into outcome, place;
    end if;
    if outcome is null then
        admitted := {schema}.admit(p_tenant, p_sid, p_session, p_after, p_fence, p_once,
            1, case when p_edit then 0 end, octet_length(p_body), told);
        outcome := admitted.outcome;
        place := admitted.place;
        moment := admitted.moment;
    end if;
    if outcome = 0 then
        insert into {schema}.events (sid, seq, edit, time, tenant, kind, sha256, body)
            values (p_sid, place, p_edit, coalesce(p_time, told), p_tenant, p_kind, p_sha256, p_body);
    end if;
    outcome := greatest(outcome, 0);
end $$;

create function {schema}.append(
    p_tenant text, p_sid uuid, p_session text, p_after integer, p_fence bigint, p_once bytea,
    p_edit integer, p_size bigint,
    p_kinds text[], p_edits boolean[], p_times double precision[], p_pieces text[],
    p_sha256s bytea[], p_bodies bytea[], p_hashes text[], p_blobs bytea[],
    out outcome integer, out place bigint, out moment double precision
) language plpgsql as $$
declare
    told double precision := {schema}.clock();
    admitted record;
begin
    admitted := {schema}.admit(p_tenant, p_sid, p_session, p_after, p_fence, p_once,
        cardinality(p_kinds), p_edit, p_size, told);
    outcome := greatest(admitted.outcome, 0);
    place := admitted.place;
    moment := admitted.moment;
    if admitted.outcome <> 0 then
        return;
    end if;
    insert into {schema}.events (sid, seq, edit, time, tenant, kind, pieces, sha256, body)
        select p_sid, place - cardinality(p_kinds) + n, e, coalesce(t, told), p_tenant, k, p, s, b
        from unnest(p_edits, p_times, p_kinds, p_pieces, p_sha256s, p_bodies)
            with ordinality as given (e, t, k, p, s, b, n);
    if cardinality(p_hashes) > 0 then
        insert into {schema}.blobs (sid, hash, tenant, body)
            select p_sid, h, p_tenant, b from unnest(p_hashes, p_blobs) as given (h, b)
            on conflict do nothing;
    end if;
end $$;

-- Several appends of one row each, every one a transaction of its own, in one round trip and under
-- one flush: the journal is written in order, so the last commit's flush is that of all before it.
create procedure {schema}.append_all(
    p_tenants text[], p_sids uuid[], p_sessions text[], p_afters integer[], p_fences bigint[],
    p_onces bytea[], p_kinds text[], p_edits boolean[], p_times double precision[],
    p_sha256s bytea[], p_bodies bytea[],
    inout outcomes integer[], inout places bigint[], inout moments double precision[]
) language plpgsql as $$
declare
    told record;
begin
    for n in 1..cardinality(p_sids) loop
        perform set_config('synchronous_commit', 'off', true),
            set_config('foldline.tenant', p_tenants[n], true);
        told := {schema}.append_one(p_tenants[n], p_sids[n], p_sessions[n], p_afters[n],
            p_fences[n], p_onces[n], p_kinds[n], p_edits[n], p_times[n], p_sha256s[n],
            p_bodies[n]);
        outcomes[n] := told.outcome;
        places[n] := told.place;
        moments[n] := told.moment;
        commit;
    end loop;
    perform pg_logical_emit_message(true, 'foldline', '');  -- a commit of nothing flushes nothing
end $$;

create function {schema}.lease(
    p_tenant text, p_sid uuid, p_session text, p_holder text, p_seconds double precision,
    out outcome integer, out place bigint, out moment double precision
) language plpgsql as $$
declare
    known record;
    told double precision;
begin
    select fence, holder, until into known from {schema}.heads where sid = p_sid for update;
    if not found then
        moment := {schema}.begun(p_tenant, p_sid, p_session);
        if moment is not null then
            outcome := 3;
            return;
        end if;
        select fence, holder, until into known from {schema}.heads where sid = p_sid for update;
    end if;
    told := {schema}.clock();
    if known.holder <> '' and known.until > told and known.holder <> p_holder then
        outcome := 2;
        return;
    end if;
    -- Renewed, a lease keeps its fence: what its holder is writing stays valid.
    place := case when known.holder = p_holder and known.until > told
        then known.fence else known.fence + 1 end;
    update {schema}.heads set fence = place, holder = p_holder, until = told + p_seconds
        where sid = p_sid;
    outcome := 0;
end $$;

create function {schema}.release(p_tenant text, p_sid uuid, p_holder text, p_fence bigint)
returns void language sql as $$
    update {schema}.heads set holder = '', until = 0
        where sid = p_sid and fence = p_fence and holder = p_holder
$$;

create function {schema}.get(p_tenant text, p_sid uuid, p_space text, p_key text)
returns table (value bytea, version bigint) language sql as $$
    select s.value, s.version from {schema}.side as s
        where s.sid = p_sid and s.space = p_space and s.key = p_key
        and (s.expires is null or s.expires > {schema}.clock())
$$;

create function {schema}.put(
    p_tenant text, p_sid uuid, p_space text, p_key text,
    p_value bytea, p_version bigint, p_seconds double precision,
    out outcome integer, out moment double precision
) language plpgsql as $$
declare
    known record;
    now_at bigint;
    ends double precision;
begin
    -- Against an erasure under way, whose own lock is not shared.
    perform pg_advisory_xact_lock_shared(hashtextextended(p_sid::text, 0));
    if p_value is not null then
        select time into moment from {schema}.erased where sid = p_sid;
        if found then
            outcome := 3;
            return;
        end if;
    end if;
    loop
        select version, expires into known from {schema}.side
            where sid = p_sid and space = p_space and key = p_key for update;
        now_at := case when found and (known.expires is null or known.expires > {schema}.clock())
            then known.version else 0 end;
        if p_version is not null and p_version <> now_at then
            outcome := 1;
            return;
        end if;
        outcome := 0;
        if p_value is null then
            delete from {schema}.side where sid = p_sid and space = p_space and key = p_key;
            return;
        end if;
        ends := {schema}.clock() + p_seconds;
        if known.version is not null then
            update {schema}.side set value = p_value, version = now_at + 1, expires = ends
                where sid = p_sid and space = p_space and key = p_key;
            return;
        end if;
        insert into {schema}.side (sid, space, key, tenant, value, version, expires)
            values (p_sid, p_space, p_key, p_tenant, p_value, 1, ends) on conflict do nothing;
        if found then
            return;
        end if;
    end loop;  -- another was first: look again
end $$;
