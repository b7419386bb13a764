import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's reference implementation of the REST catalog, over a catalog with the given properties,
 * on the loopback interface. Arguments: port, token or "", and name=value for each property.
 */
public class IcebergCatalog {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int at = 2; at < arguments.length; at++) {
      String[] pair = arguments[at].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    var catalog = CatalogUtil.buildIcebergCatalog("rest", properties, new Configuration());
    var context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    var servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
    context.addServlet(new ServletHolder(servlet), "/*");
    if (!arguments[1].isEmpty()) {
      String expected = "Bearer " + arguments[1];
      jakarta.servlet.Filter filter =
          (request, response, chain) -> {
            String given = ((HttpServletRequest) request).getHeader("Authorization");
            if (expected.equals(given)) {
              chain.doFilter(request, response);
            } else {
              ((HttpServletResponse) response).sendError(403, "the token is missing or wrong");
            }
          };
      context.addFilter(new FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST));
    }
    int port = Integer.parseInt(arguments[0]);
    var server = new Server(new InetSocketAddress("127.0.0.1", port));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
