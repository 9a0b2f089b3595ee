import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.serde.avro.NonRecordContainer;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import java.io.ByteArrayOutputStream;
import java.util.Base64;
import java.util.Map;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Schema;

/** Avro as AvroData maps it (Apicurio's edition of Confluent's class): the schema's text and the value's binary form. */
class AvroPart {
    static void answer(ObjectNode answer, Schema schema, JsonNode request, Map<String, Object> config) throws Exception {
        AvroData data = new AvroData(new AvroDataConfig(config));
        org.apache.avro.Schema avro = data.fromConnectSchema(schema);
        answer.put("text", avro.toString());
        if (request.has("value")) {
            Object converted = data.fromConnectData(schema, ConverterVectors.value(schema, request.get("value")));
            if (converted instanceof NonRecordContainer) {
                converted = ((NonRecordContainer) converted).getValue();
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
            new GenericDatumWriter<Object>(avro).write(converted, encoder);
            encoder.flush();
            answer.put("bytes", Base64.getEncoder().encodeToString(out.toByteArray()));
        }
    }
}
