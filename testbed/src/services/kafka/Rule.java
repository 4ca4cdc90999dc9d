import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.resource.*;

/**
 * Adds or removes a rule that denies all users an operation on a topic. Arguments: brokers, "add" or "remove", topic,
 * operation.
 */
class Rule {
    public static void main(String[] args) throws Exception {
        var rule = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, args[2], PatternType.LITERAL),
            new AccessControlEntry(
                "User:ANONYMOUS", "*", AclOperation.fromString(args[3]), AclPermissionType.DENY));
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            if (args[1].equals("add")) {
                admin.createAcls(List.of(rule)).all().get();
            } else {
                admin.deleteAcls(List.of(rule.toFilter())).all().get();
            }
        }
    }
}
