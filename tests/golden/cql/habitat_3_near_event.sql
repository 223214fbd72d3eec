-- Readings within ten metres of an event of the last minute.
Register Stream Sensors (sensor integer, x number 'm', y number 'm', light number 'lux', temperature number 'degC') Rate 20 Per Second;
Register Stream Events (event integer, kind text, x number 'm', y number 'm');

Select Rstream(s.sensor, s.light, e.event)
From Sensors [Now] s, Events [Range 1 Minute] e
Where sqrt(power(s.x - e.x, 2) + power(s.y - e.y, 2)) <= 10
