-- One reading of each sensor in ten seconds.
Register Stream Sensors (sensor integer, x number 'm', y number 'm', light number 'lux', temperature number 'degC') Rate 20 Per Second;
Register Stream Events (event integer, kind text, x number 'm', y number 'm');

Select Rstream(sensor, last(light) As light, last(temperature) As temperature)
From Sensors [Range 10 Seconds Slide 10 Seconds] Group By sensor
