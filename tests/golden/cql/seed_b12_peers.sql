-- Packets joined with the volume of their peer.
Register Stream S1 (pkt_hdr text, peer_id integer, interval integer);
Register Stream S2 (peer_id integer, num_bytes integer, interval integer);

Select * From S1, S2 Where S1.peer_id = S2.peer_id and S1.interval = S2.interval
