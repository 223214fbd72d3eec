-- Packets to watched addresses whose payload matches two patterns (Babu, section 4.1.1, in words there).
Register Stream Packets (src text, dst text, payload text);
Register Relation Watched (address text) Static;

Select * From Packets
Where dst In (Select address From Watched) and payload Like '%passwd%' and regex(payload, 'GET /[a-z]+')
